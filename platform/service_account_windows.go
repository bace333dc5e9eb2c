package platform

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/windows"
)

var (
	advapi32          = windows.NewLazySystemDLL("advapi32.dll")
	procLogonUser     = advapi32.NewProc("LogonUserW")
	procLsaOpen       = advapi32.NewProc("LsaOpenPolicy")
	procLsaClose      = advapi32.NewProc("LsaClose")
	procLsaAddRights  = advapi32.NewProc("LsaAddAccountRights")
	procLsaDropRights = advapi32.NewProc("LsaRemoveAccountRights")
	procLsaListRights = advapi32.NewProc("LsaEnumerateAccountRights")
	procLsaFree       = advapi32.NewProc("LsaFreeMemory")
)

// account is a user of Windows.
type account struct {
	sid    *windows.SID
	domain string // of a local account the computer's name
	user   string
}

func (a account) String() string { return a.domain + `\` + a.user }

// ownAccount is the account of whom this process runs as. An account of the
// system's own is refused: no person's sessions are there, and it may do anything.
func ownAccount() (account, error) {
	u, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return account{}, fmt.Errorf("cannot tell who the user is: %w", err)
	}
	for _, system := range []windows.WELL_KNOWN_SID_TYPE{windows.WinLocalSystemSid, windows.WinLocalServiceSid, windows.WinNetworkServiceSid} {
		if u.User.Sid.IsWellKnown(system) {
			return account{}, errors.New("the service never runs under an account of the system's own; run this as the user whose sessions they are")
		}
	}
	user, domain, _, err := u.User.Sid.LookupAccount("")
	if err != nil {
		return account{}, fmt.Errorf("cannot tell the user's name: %w", err)
	}
	return account{sid: u.User.Sid, domain: domain, user: user}, nil
}

// is tells whether a name or a SID, as the system's definitions have them, means this account.
func (a account) is(name string) bool {
	if strings.EqualFold(name, a.String()) || strings.EqualFold(name, `.\`+a.user) && a.local() {
		return true
	}
	sid, err := windows.StringToSid(name)
	if err != nil {
		sid, _, _, err = windows.LookupSID("", name)
	}
	return err == nil && windows.EqualSid(sid, a.sid)
}

// local tells whether the account is one of this computer and not of a domain.
func (a account) local() bool {
	name, err := windows.ComputerName()
	return err == nil && strings.EqualFold(name, a.domain)
}

// logonInteractive (LOGON32_LOGON_INTERACTIVE) takes a password that is known here
// though the domain can't be asked; the type of services needs their right already.
const logonInteractive = 2

// checkPassword logs the account on and off again.
func (a account) checkPassword(password string) error {
	if password == "" {
		return fmt.Errorf("the account %s has no password, or none was given, and Windows runs no service so; take a logon task: intermission service install --task", a)
	}
	var words [3]*uint16
	for i, s := range []string{a.user, a.domain, password} {
		word, err := windows.UTF16PtrFromString(s)
		if err != nil {
			return errors.New("that is no password of Windows: it has a zero in it")
		}
		words[i] = word
	}
	var token windows.Handle
	ok, _, err := procLogonUser.Call(uintptr(unsafe.Pointer(words[0])), uintptr(unsafe.Pointer(words[1])),
		uintptr(unsafe.Pointer(words[2])), logonInteractive, 0, uintptr(unsafe.Pointer(&token)))
	if ok != 0 {
		_ = windows.CloseHandle(token)
		return nil
	}
	if errors.Is(err, windows.ERROR_LOGON_FAILURE) {
		return fmt.Errorf("that is not the password of %s (a PIN isn't it); nothing was changed", a)
	}
	return fmt.Errorf("cannot log on as %s: %w; nothing was changed", a, err)
}

// serviceRight lets an account log on as a service (SE_SERVICE_LOGON_NAME).
const serviceRight = "SeServiceLogonRight"

// Access to the policy (ntsecapi.h).
const (
	policyCreateAccount = 0x10
	policyLookupNames   = 0x800
)

// grantServiceRight gives the account the right to log on as a service, and returns
// what takes it back; that does nothing when the account had it already.
func (a account) grantServiceRight() (revoke func() error, err error) {
	policy, err := openPolicy()
	if err != nil {
		return nil, err
	}
	defer closePolicy(policy)
	had := a.hasRight(policy, serviceRight)
	if err := a.changeRight(procLsaAddRights, policy); err != nil {
		return nil, fmt.Errorf("cannot let %s log on as a service: %w", a, err)
	}
	return func() error {
		if had {
			return nil
		}
		policy, err := openPolicy()
		if err != nil {
			return err
		}
		defer closePolicy(policy)
		return a.changeRight(procLsaDropRights, policy, 0)
	}, nil
}

// changeRight adds or removes serviceRight; more stands between account and right.
func (a account) changeRight(proc *windows.LazyProc, policy uintptr, more ...uintptr) error {
	right, err := windows.NewNTUnicodeString(serviceRight)
	if err != nil {
		return err
	}
	args := append([]uintptr{policy, uintptr(unsafe.Pointer(a.sid))}, more...)
	status, _, _ := proc.Call(append(args, uintptr(unsafe.Pointer(right)), 1)...)
	return statusError(status)
}

func (a account) hasRight(policy uintptr, right string) bool {
	var list *windows.NTUnicodeString
	var n uint32
	status, _, _ := procLsaListRights.Call(policy, uintptr(unsafe.Pointer(a.sid)), uintptr(unsafe.Pointer(&list)), uintptr(unsafe.Pointer(&n)))
	if status != 0 || list == nil {
		return false // of an account without any it says that there is none
	}
	defer func() { _, _, _ = procLsaFree.Call(uintptr(unsafe.Pointer(list))) }()
	for _, r := range unsafe.Slice(list, n) {
		if r.String() == right {
			return true
		}
	}
	return false
}

func openPolicy() (uintptr, error) {
	var policy uintptr
	attributes := windows.OBJECT_ATTRIBUTES{}
	status, _, _ := procLsaOpen.Call(0, uintptr(unsafe.Pointer(&attributes)), policyCreateAccount|policyLookupNames, uintptr(unsafe.Pointer(&policy)))
	if err := statusError(status); err != nil {
		return 0, fmt.Errorf("cannot open the policy of who may log on how: %w", err)
	}
	return policy, nil
}

func closePolicy(policy uintptr) { _, _, _ = procLsaClose.Call(policy) }

func statusError(status uintptr) error {
	if status == 0 {
		return nil
	}
	return windows.NTStatus(status).Errno()
}

// elevated tells whether this process has an administrator's full rights.
func elevated() bool { return windows.GetCurrentProcessToken().IsElevated() }
