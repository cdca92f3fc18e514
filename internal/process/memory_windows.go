package process

import "os"

// PeakMemory is the largest resident set that an ended process had, in bytes; 0 if the system does not tell.
func PeakMemory(*os.ProcessState) int64 { return 0 }
