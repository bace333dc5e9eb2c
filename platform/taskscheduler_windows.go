package platform

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/go-ole/go-ole"
)

// The Task Scheduler's classes, and where its functions stand in the tables of its
// interfaces (taskschd.h). IDispatch, which would go by names, isn't there under Wine.
var (
	classTaskScheduler   = ole.NewGUID("{0F87369F-A4E5-4CFC-BD3E-73E6154572DD}")
	interfaceTaskService = ole.NewGUID("{2FABA4C7-4DA9-4013-9697-20CC3FD40F85}")
)

const (
	serviceGetFolder = 7 // ITaskService
	serviceConnect   = 10

	folderGetTask      = 13 // ITaskFolder
	folderDeleteTask   = 15
	folderRegisterTask = 16

	taskGetState   = 9 // IRegisteredTask
	taskGetEnabled = 10
	taskRun        = 12
	taskGetXML     = 20

	taskTableSize = 24 // of the longest part that we know

	taskCreateOrUpdate = 6 // TASK_CREATE_OR_UPDATE
	taskInteractive    = 3 // TASK_LOGON_INTERACTIVE_TOKEN
	taskStateQueued    = 2
	taskStateRunning   = 4
)

// taskStates are in the words of Windows' own tools.
var taskStates = map[int32]string{0: "unknown", 1: "disabled", taskStateQueued: "queued", 3: "ready", taskStateRunning: "running"}

// notThere tells whether err says that there is no such task, or folder.
func notThere(err error) bool {
	const fileNotFound, pathNotFound = 0x80070002, 0x80070003
	var known *ole.OleError
	return errors.As(err, &known) && (known.Code() == fileNotFound || known.Code() == pathNotFound)
}

// comObject is an object whose functions are called by their place in its table.
type comObject struct{ *ole.IUnknown }

// call calls a function. Where its argument is a VARIANT it takes a pointer to one, as
// both 64-bit systems pass what is larger than two words.
//
//go:uintptrescapes
func (o comObject) call(place int, args ...uintptr) error {
	table := (*[taskTableSize]uintptr)(unsafe.Pointer(o.RawVTable))
	r, _, _ := syscall.SyscallN(table[place], append([]uintptr{uintptr(unsafe.Pointer(o.IUnknown))}, args...)...)
	if int32(r) < 0 {
		return ole.NewError(r & 0xffffffff)
	}
	return nil
}

// open gives the object that a function knows by a name; the caller releases it.
func (o comObject) open(place int, name string) (comObject, error) {
	text := ole.SysAllocStringLen(name)
	defer func() { _ = ole.SysFreeString(text) }()
	var found *ole.IUnknown
	err := o.call(place, uintptr(unsafe.Pointer(text)), uintptr(unsafe.Pointer(&found)))
	return comObject{found}, err
}

// text gives the text that a function answers with.
func (o comObject) text(place int) (string, error) {
	var text *uint16
	if err := o.call(place, uintptr(unsafe.Pointer(&text))); err != nil {
		return "", err
	}
	defer func() { _ = ole.SysFreeString((*int16)(unsafe.Pointer(text))) }()
	return ole.BstrToString(text), nil
}

// noValue is an argument that is left out.
func noValue() *ole.VARIANT {
	v := ole.NewVariant(ole.VT_EMPTY, 0)
	return &v
}

// scheduler calls do with the scheduler's root folder, on a thread of its own.
func scheduler(do func(folder comObject) error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var known *ole.OleError
	// S_FALSE says that COM is there already; it is counted all the same.
	if err := ole.CoInitializeEx(0, ole.COINIT_MULTITHREADED); err != nil && (!errors.As(err, &known) || known.Code() != 1) {
		return fmt.Errorf("cannot use COM: %w", err)
	}
	defer ole.CoUninitialize()
	service, err := ole.CreateInstance(classTaskScheduler, interfaceTaskService)
	if err != nil {
		return fmt.Errorf("cannot reach the Task Scheduler: %w", err)
	}
	defer service.Release()
	here := noValue() // this computer, this user
	if err := (comObject{service}).call(serviceConnect, uintptr(unsafe.Pointer(here)), uintptr(unsafe.Pointer(here)),
		uintptr(unsafe.Pointer(here)), uintptr(unsafe.Pointer(here))); err != nil {
		return fmt.Errorf("cannot connect to the Task Scheduler: %w", err)
	}
	folder, err := comObject{service}.open(serviceGetFolder, `\`)
	if err != nil {
		return fmt.Errorf("cannot open the folder of tasks: %w", err)
	}
	defer folder.Release()
	return do(folder)
}
