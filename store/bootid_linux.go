package store

import (
	"os"
	"strings"
)

// systemBootID identifies this boot of the kernel (random(4)).
func systemBootID() (string, bool) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	id := strings.TrimSpace(string(b))
	return id, err == nil && id != ""
}
