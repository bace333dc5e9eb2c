package platform

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/windows"
)

// memoryCounters is PROCESS_MEMORY_COUNTERS of <psapi.h>.
type memoryCounters struct {
	Size                       uint32
	PageFaultCount             uint32
	PeakWorkingSetSize         uintptr
	WorkingSetSize             uintptr
	QuotaPeakPagedPoolUsage    uintptr
	QuotaPagedPoolUsage        uintptr
	QuotaPeakNonPagedPoolUsage uintptr
	QuotaNonPagedPoolUsage     uintptr
	PagefileUsage              uintptr
	PeakPagefileUsage          uintptr
}

var procMemoryInfo = kernel32.NewProc("K32GetProcessMemoryInfo")

// RSS is the memory of the process that is resident (its working set), in bytes.
func RSS(pid int) (int64, error) {
	h, err := openProcess(pid, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = windows.CloseHandle(h) }()
	m := memoryCounters{}
	m.Size = uint32(unsafe.Sizeof(m))
	if ok, _, err := procMemoryInfo.Call(uintptr(h), uintptr(unsafe.Pointer(&m)), uintptr(m.Size)); ok == 0 {
		return 0, fmt.Errorf("cannot tell the memory of process %d: %w", pid, err)
	}
	return int64(m.WorkingSetSize), nil
}
