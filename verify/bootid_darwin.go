package verify

import "syscall"

// bootID identifies this boot of the machine (sysctl(3)); "" if that is not known.
func bootID() string {
	id, err := syscall.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}
