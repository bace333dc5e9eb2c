package platform

// RSS is the memory of the process that is resident, in bytes; 0 where the system
// doesn't tell: on macOS only a C library does.
func RSS(int) (int64, error) { return 0, nil }
