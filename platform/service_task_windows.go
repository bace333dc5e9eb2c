package platform

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unsafe"

	"github.com/go-ole/go-ole"
	"golang.org/x/sys/windows/registry"
)

// schedulerTask is a task that starts when the user logs on. The scheduler is asked
// by its COM interface: what schtasks prints is in the user's language, and its
// /End kills.
type schedulerTask struct {
	Service
	account account
}

// name is the account's own: the names of tasks are everybody's.
func (s schedulerTask) name() string { return s.Name + "-" + s.account.sid.String() }

// registered is what the scheduler knows of our task.
type registered struct {
	task
	state   int32
	enabled bool
}

func (r registered) running() bool { return r.state == taskStateRunning || r.state == taskStateQueued }

// get reads the task; ErrNotInstalled when there is none.
func (s schedulerTask) get() (r registered, err error) {
	err = s.with(func(t comObject) error {
		text, err := t.text(taskGetXML)
		if err != nil {
			return fmt.Errorf("cannot read the task %s: %w", s.name(), err)
		}
		if r.task, err = parseTask(text); err != nil {
			return err
		}
		var enabled int16 // VARIANT_BOOL
		if err := t.call(taskGetState, uintptr(unsafe.Pointer(&r.state))); err != nil {
			return fmt.Errorf("cannot ask for the state of the task %s: %w", s.name(), err)
		}
		if err := t.call(taskGetEnabled, uintptr(unsafe.Pointer(&enabled))); err != nil {
			return fmt.Errorf("cannot ask whether the task %s is switched on: %w", s.name(), err)
		}
		r.enabled = enabled != 0
		return nil
	})
	return r, err
}

// with calls do with our task.
func (s schedulerTask) with(do func(t comObject) error) error {
	return scheduler(func(folder comObject) error {
		t, err := folder.open(folderGetTask, s.name())
		if notThere(err) {
			return ErrNotInstalled
		}
		if err != nil {
			return fmt.Errorf("cannot open the task %s: %w", s.name(), err)
		}
		defer t.Release()
		return do(t)
	})
}

func (s schedulerTask) status(context.Context) (ServiceStatus, error) {
	r, err := s.get()
	if errors.Is(err, ErrNotInstalled) {
		return ServiceStatus{}, nil
	}
	if err != nil {
		return ServiceStatus{}, err
	}
	return ServiceStatus{
		Installed: true, Kind: LogonTask, Definition: s.name(), Program: r.Command, Version: r.Version,
		Current: s.current(r.task), Enabled: r.enabled && r.task.enabled(), Running: r.running(), State: taskStates[r.state],
	}, nil
}

// current tells whether the task is what install would write.
func (s schedulerTask) current(have task) bool {
	want, err := parseTask(s.logonTask(s.account.String()))
	return err == nil && want.same(have, func(a, b string) bool { return s.account.is(a) == s.account.is(b) })
}

func (s schedulerTask) install(_ context.Context, _ ServiceOptions, report *ServiceReport) error {
	if err := s.checkTask(); err != nil {
		return err
	}
	if err := s.checkEnv(); err != nil {
		return err
	}
	had, err := s.get()
	if err != nil && !errors.Is(err, ErrNotInstalled) {
		return err
	}
	if err == nil && s.current(had.task) && had.task.Version == s.Version && had.enabled && had.task.enabled() {
		report.Done = append(report.Done, "The logon task "+s.name()+" is installed and current.")
		return nil
	}
	if err := s.register(s.logonTask(s.account.String())); err != nil {
		return fmt.Errorf("the Task Scheduler refuses it: %w", err)
	}
	report.Done = append(report.Done, fmt.Sprintf("Made the logon task %s: Windows starts the supervisor when %s logs on.", s.name(), s.account))
	return nil
}

// checkEnv makes sure that the task will have our variables: a task has those of its
// user, and can't be given any.
func (s schedulerTask) checkEnv() error {
	if len(s.Env) == 0 {
		return nil
	}
	k, err := registry.OpenKey(registry.CURRENT_USER, "Environment", registry.QUERY_VALUE)
	if err != nil {
		return fmt.Errorf("cannot read your variables: %w", err)
	}
	defer func() { _ = k.Close() }()
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if v, _, err := k.GetStringValue(name); err != nil || v != s.Env[name] {
			return fmt.Errorf(`%s is set in this prompt only, where a logon task wouldn't see it: set it for good (setx %s "%s"), or unset it here`, name, name, s.Env[name])
		}
	}
	return nil
}

// register writes the definition, over one that is there. User and password are left
// out: the definition names the one, and a task of this kind needs not the other.
func (s schedulerTask) register(definition string) error {
	return scheduler(func(folder comObject) error {
		name, text := ole.SysAllocStringLen(s.name()), ole.SysAllocStringLen(definition)
		defer func() { _ = errors.Join(ole.SysFreeString(name), ole.SysFreeString(text)) }()
		none := noValue()
		var made *ole.IUnknown
		err := folder.call(folderRegisterTask, uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(text)), taskCreateOrUpdate,
			uintptr(unsafe.Pointer(none)), uintptr(unsafe.Pointer(none)), taskInteractive, uintptr(unsafe.Pointer(none)), uintptr(unsafe.Pointer(&made)))
		if err == nil {
			made.Release()
		}
		return err
	})
}

func (s schedulerTask) remove(context.Context) error {
	return scheduler(func(folder comObject) error {
		name := ole.SysAllocStringLen(s.name())
		defer func() { _ = ole.SysFreeString(name) }()
		if err := folder.call(folderDeleteTask, uintptr(unsafe.Pointer(name)), 0); err != nil && !notThere(err) {
			return err
		}
		return nil
	})
}

func (s schedulerTask) start(ctx context.Context) error {
	var asked error
	left := leaves(ctx, func() bool {
		var r registered
		r, asked = s.get()
		return asked == nil && r.running()
	})
	if asked != nil || !left {
		return asked
	}
	return s.with(func(t comObject) error {
		var run *ole.IUnknown
		err := t.call(taskRun, uintptr(unsafe.Pointer(noValue())), uintptr(unsafe.Pointer(&run)))
		if err == nil && run != nil {
			run.Release()
		}
		return err
	})
}

// stop has nothing but a kill to stop a task with.
func (s schedulerTask) stop(context.Context) error {
	r, err := s.get()
	if err == nil && r.running() {
		return ErrStopByControl
	}
	return err
}
