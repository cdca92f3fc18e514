package verify

import (
	"os"
	"strings"
)

// bootID identifies this boot of the machine (random(4)); "" if that is not known.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
