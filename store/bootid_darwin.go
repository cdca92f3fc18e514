package store

import "syscall"

// systemBootID identifies this boot of the kernel (sysctl(3)).
func systemBootID() (string, bool) {
	id, err := syscall.Sysctl("kern.bootsessionuuid")
	return id, err == nil && id != ""
}
