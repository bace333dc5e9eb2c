//go:build !linux

package restart

const onSmallDisk = "RESTART_TEST_SMALL_DISK"

func smallDisk(string) int { return 1 }
