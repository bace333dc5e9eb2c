package platform

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
	"golang.org/x/sys/windows/svc/mgr"
)

// Below HKEY_LOCAL_MACHINE; what stands there goes with the service.
const servicesKey = `SYSTEM\CurrentControlSet\Services\`

// scmDefinition is what of a service's definition is ours.
type scmDefinition struct {
	commandLine, title, comment, version string
	start                                uint32
	env                                  []string // NAME=value, sorted
}

// want is the definition as Install writes it.
func (s scmService) want() scmDefinition {
	d := scmDefinition{title: s.Title, comment: s.Comment, version: s.Version, start: mgr.StartAutomatic}
	for i, arg := range s.Argv {
		if i > 0 {
			d.commandLine += " "
		}
		d.commandLine += syscall.EscapeArg(arg)
	}
	for _, k := range slices.Sorted(maps.Keys(s.Env)) {
		d.env = append(d.env, k+"="+s.Env[k])
	}
	return d
}

// equal tells whether both do the same: the version of who wrote it is no part of that.
func (d scmDefinition) equal(other scmDefinition) bool {
	return d.commandLine == other.commandLine && d.title == other.title && d.comment == other.comment &&
		d.start == other.start && slices.Equal(d.env, other.env)
}

// have reads the definition, and whose the service is.
func (s scmService) have(h *mgr.Service) (d scmDefinition, owner string, err error) {
	var c *windows.QUERY_SERVICE_CONFIG
	buffer, err := grown(func(p *byte, size uint32, needed *uint32) error {
		c = (*windows.QUERY_SERVICE_CONFIG)(unsafe.Pointer(p))
		return windows.QueryServiceConfig(h.Handle, c, size, needed)
	})
	if err != nil {
		return d, "", fmt.Errorf("cannot read the definition of the service %s: %w", s.Name, err)
	}
	d = scmDefinition{
		commandLine: windows.UTF16PtrToString(c.BinaryPathName), title: windows.UTF16PtrToString(c.DisplayName), start: c.StartType,
	}
	owner = windows.UTF16PtrToString(c.ServiceStartName)
	var about *windows.SERVICE_DESCRIPTION
	more, err := grown(func(p *byte, size uint32, needed *uint32) error {
		about = (*windows.SERVICE_DESCRIPTION)(unsafe.Pointer(p))
		return windows.QueryServiceConfig2(h.Handle, windows.SERVICE_CONFIG_DESCRIPTION, p, size, needed)
	})
	if err == nil && about.Description != nil {
		d.comment = windows.UTF16PtrToString(about.Description)
	}
	runtime.KeepAlive(buffer)
	runtime.KeepAlive(more)
	k, err := registry.OpenKey(registry.LOCAL_MACHINE, servicesKey+s.Name, registry.QUERY_VALUE)
	if err != nil {
		return d, owner, nil
	}
	defer func() { _ = k.Close() }()
	d.env, _, _ = k.GetStringsValue(environmentValue)
	d.version, _, _ = k.GetStringValue(versionValue)
	slices.Sort(d.env)
	return d, owner, nil
}

// grown calls query with a buffer that is large enough for its answer.
func grown(query func(p *byte, size uint32, needed *uint32) error) ([]byte, error) {
	size := uint32(1 << 10)
	for {
		buffer := make([]byte, size)
		needed := size
		err := query(&buffer[0], size, &needed)
		if err == nil || !errors.Is(err, windows.ERROR_INSUFFICIENT_BUFFER) || needed <= size {
			return buffer, err
		}
		size = needed
	}
}

// Values of the service's key: the variables that the manager gives it, and what is ours.
const (
	environmentValue = "Environment"
	versionValue     = "IntermissionVersion"
)

// Recovery: after a first end that was no stop at once, then more slowly. A handover
// is such an end too, so that the count starts anew soon, in seconds.
var (
	recovery = []mgr.RecoveryAction{
		{Type: mgr.ServiceRestart, Delay: time.Second},
		{Type: mgr.ServiceRestart, Delay: 10 * time.Second},
		{Type: mgr.ServiceRestart, Delay: time.Minute},
	}
	recoveryReset uint32 = 600
)

// update writes the definition d over what is there, account and password excepted.
func (s scmService) update(h *mgr.Service, d scmDefinition, report *ServiceReport) error {
	var words [3]*uint16
	for i, text := range []string{d.commandLine, d.title, d.comment} {
		word, err := windows.UTF16PtrFromString(text)
		if err != nil {
			return err
		}
		words[i] = word
	}
	err := windows.ChangeServiceConfig(h.Handle, windows.SERVICE_NO_CHANGE, d.start, windows.SERVICE_NO_CHANGE, words[0], nil, nil, nil, nil, nil, words[1])
	if err == nil {
		about := windows.SERVICE_DESCRIPTION{Description: words[2]}
		err = windows.ChangeServiceConfig2(h.Handle, windows.SERVICE_CONFIG_DESCRIPTION, (*byte)(unsafe.Pointer(&about)))
	}
	if err != nil {
		return fmt.Errorf("cannot define the service %s: %w", s.Name, err)
	}
	if err := s.writeValues(d); err != nil {
		return fmt.Errorf("cannot write the environment of the service %s: %w", s.Name, err)
	}
	limit := uint32(ServiceStopLimit.Milliseconds()) // SERVICE_PRESHUTDOWN_INFO
	if err := windows.ChangeServiceConfig2(h.Handle, windows.SERVICE_CONFIG_PRESHUTDOWN_INFO, (*byte)(unsafe.Pointer(&limit))); err != nil {
		return fmt.Errorf("cannot give the service %s time to end at the computer's shutdown: %w", s.Name, err)
	}
	if err := s.allowUser(h); err != nil {
		return fmt.Errorf("cannot let %s start and stop the service %s: %w", s.account, s.Name, err)
	}
	// It works without, less well.
	err = h.SetRecoveryActions(recovery, recoveryReset)
	if err == nil { // an exit status is a failure too, or a handover would end the service
		err = h.SetRecoveryActionsOnNonCrashFailures(true)
	}
	if err != nil {
		report.Next = append(report.Next, fmt.Sprintf("Windows doesn't start the service again by itself when it fails: %v", err))
	}
	return nil
}

func (s scmService) writeValues(d scmDefinition) error {
	k, err := registry.OpenKey(registry.LOCAL_MACHINE, servicesKey+s.Name, registry.SET_VALUE)
	if err != nil {
		return err
	}
	defer func() { _ = k.Close() }()
	if err := k.SetStringValue(versionValue, d.version); err != nil {
		return err
	}
	if len(d.env) > 0 {
		return k.SetStringsValue(environmentValue, d.env)
	}
	if err := k.DeleteValue(environmentValue); !errors.Is(err, registry.ErrNotExist) {
		return err
	}
	return nil
}

var procSetServiceSecurity = advapi32.NewProc("SetServiceObjectSecurity")

// allowUser lets the account start and stop its service without an administrator;
// otherwise the list is the one that Windows gives a new service.
func (s scmService) allowUser(h *mgr.Service) error {
	sd, err := windows.SecurityDescriptorFromString("D:(A;;CCLCSWRPWPDTLOCRRC;;;SY)(A;;CCDCLCSWRPWPDTLOCRSDRCWDWO;;;BA)" +
		"(A;;CCLCSWLOCRRC;;;IU)(A;;CCLCSWLOCRRC;;;SU)(A;;CCLCSWRPWPLOCRRC;;;" + s.account.sid.String() + ")")
	if err != nil {
		return err
	}
	ok, _, err := procSetServiceSecurity.Call(uintptr(h.Handle), windows.DACL_SECURITY_INFORMATION, uintptr(unsafe.Pointer(sd)))
	if ok != 0 {
		return nil
	}
	return err
}
