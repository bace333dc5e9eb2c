package platform

import (
	"context"
	"errors"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
)

// Below HKEY_CURRENT_USER.
const (
	runKey      = `Software\Microsoft\Windows\CurrentVersion\Run`
	approvedKey = `Software\Microsoft\Windows\CurrentVersion\Explorer\StartupApproved\Run`
)

// runValue is the command line of the entry; "" when there is none.
func (a Autostart) runValue() (string, error) {
	k, err := registry.OpenKey(registry.CURRENT_USER, runKey, registry.QUERY_VALUE)
	if errors.Is(err, registry.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = k.Close() }()
	s, _, err := k.GetStringValue(a.Name)
	if errors.Is(err, registry.ErrNotExist) {
		return "", nil
	}
	return s, err
}

// disapproved tells whether the person has switched the entry off elsewhere.
func (a Autostart) disapproved() (bool, error) {
	k, err := registry.OpenKey(registry.CURRENT_USER, approvedKey, registry.QUERY_VALUE)
	if errors.Is(err, registry.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = k.Close() }()
	v, _, err := k.GetBinaryValue(a.Name)
	if errors.Is(err, registry.ErrNotExist) {
		return false, nil
	}
	return startupDisapproved(v), err
}

func (a Autostart) enabled() (bool, error) {
	command, err := a.runValue()
	if err != nil || command == "" {
		return false, err
	}
	off, err := a.disapproved()
	return !off && err == nil, err
}

func (a Autostart) enable() error {
	want := runCommand(a.Argv)
	if got, err := a.runValue(); err != nil {
		return err
	} else if got != want {
		k, _, err := registry.CreateKey(registry.CURRENT_USER, runKey, registry.SET_VALUE)
		if err != nil {
			return err
		}
		defer func() { _ = k.Close() }()
		if err := k.SetStringValue(a.Name, want); err != nil {
			return err
		}
	}
	off, err := a.disapproved()
	if err != nil || !off {
		return err
	}
	return deleteValue(approvedKey, a.Name)
}

func (a Autostart) disable() error {
	if err := deleteValue(runKey, a.Name); err != nil {
		return err
	}
	return deleteValue(approvedKey, a.Name)
}

func deleteValue(key, name string) error {
	k, err := registry.OpenKey(registry.CURRENT_USER, key, registry.SET_VALUE)
	if err == nil {
		defer func() { _ = k.Close() }()
		err = k.DeleteValue(name)
	}
	if errors.Is(err, registry.ErrNotExist) {
		return nil
	}
	return err
}

// regNotifyThreadAgnostic keeps a notification alive when the thread that asked for
// it ends (REG_NOTIFY_THREAD_AGNOSTIC): goroutines change threads.
const regNotifyThreadAgnostic = 0x10000000

func (a Autostart) watch(ctx context.Context, changed func()) (err error) {
	w := &keyWatch{}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	for _, path := range []string{runKey, approvedKey} {
		// Created if it isn't there, for only what is there can be watched.
		k, _, err := registry.CreateKey(registry.CURRENT_USER, path, registry.NOTIFY)
		if err != nil {
			return err
		}
		w.keys = append(w.keys, k)
		if err := w.event(); err != nil {
			return err
		}
		if err := w.arm(len(w.keys) - 1); err != nil {
			return err
		}
	}
	if err := w.event(); err != nil { // the last ends the watch
		return err
	}
	go w.run(ctx, changed)
	return nil
}

// keyWatch waits for changes of keys: an event each, and one for the end.
type keyWatch struct {
	keys   []registry.Key
	events []windows.Handle
}

// event adds an event that resets itself.
func (w *keyWatch) event() error {
	e, err := windows.CreateEvent(nil, 0, 0, nil)
	if err == nil {
		w.events = append(w.events, e)
	}
	return err
}

// arm asks for the next change; each is told once.
func (w *keyWatch) arm(i int) error {
	const what = windows.REG_NOTIFY_CHANGE_NAME | windows.REG_NOTIFY_CHANGE_LAST_SET | regNotifyThreadAgnostic
	return windows.RegNotifyChangeKeyValue(windows.Handle(w.keys[i]), false, what, w.events[i], true)
}

func (w *keyWatch) run(ctx context.Context, changed func()) {
	end := w.events[len(w.keys)]
	signalled := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(signalled)
		_ = windows.SetEvent(end)
	})
	for {
		i, err := windows.WaitForMultipleObjects(w.events, false, windows.INFINITE)
		if err != nil || int(i) >= len(w.keys) {
			break
		}
		// Armed before it is told, so that no change falls between the two.
		if err := w.arm(int(i)); err != nil {
			break
		}
		changed()
	}
	if !stop() {
		<-signalled // the event is still in use
	}
	w.close()
}

func (w *keyWatch) close() {
	for _, k := range w.keys {
		_ = k.Close()
	}
	for _, e := range w.events {
		_ = windows.CloseHandle(e)
	}
}

func (a Autostart) installDesktopEntry([]byte) error { return nil }
