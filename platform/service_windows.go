package platform

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// windowsKind is one of the ways in which Windows keeps a supervisor running.
type windowsKind interface {
	// status is of what is installed for this account; not installed is no error.
	status(ctx context.Context) (ServiceStatus, error)
	install(ctx context.Context, o ServiceOptions, report *ServiceReport) error
	// remove takes the definition away, running or not.
	remove(ctx context.Context) error
	start(ctx context.Context) error
	stop(ctx context.Context) error
}

// kinds are those that may be installed, each for this account.
func (s Service) kinds() (map[ServiceKind]windowsKind, error) {
	err := Autostart{Name: s.Name, Title: s.Title, Comment: s.Comment, Argv: s.Argv}.check()
	if err != nil {
		return nil, err
	}
	a, err := ownAccount()
	if err != nil {
		return nil, err
	}
	return map[ServiceKind]windowsKind{WindowsService: scmService{s, a}, LogonTask: schedulerTask{s, a}}, nil
}

// installed finds what is installed: the service first, for it alone runs without a
// logon. ErrNotInstalled when there is nothing.
func (s Service) installed(ctx context.Context) (windowsKind, ServiceStatus, error) {
	kinds, err := s.kinds()
	if err != nil {
		return nil, ServiceStatus{}, err
	}
	for _, kind := range []ServiceKind{WindowsService, LogonTask} {
		st, err := kinds[kind].status(ctx)
		if err != nil {
			return nil, st, fmt.Errorf("cannot tell whether the %s is installed: %w", kind, err)
		}
		if st.Installed {
			return kinds[kind], st, nil
		}
	}
	return nil, ServiceStatus{State: "not installed"}, ErrNotInstalled
}

// install takes the kind that is asked for, else the one that is installed, else the
// logon task. The other kind is taken away once this one stands.
func (s Service) install(ctx context.Context, o ServiceOptions) (ServiceReport, error) {
	report := ServiceReport{Done: []string{}, Next: []string{}}
	kinds, err := s.kinds()
	if err != nil {
		return report, fmt.Errorf("cannot install the service: %w", err)
	}
	_, had, err := s.installed(ctx)
	if err != nil && !errors.Is(err, ErrNotInstalled) {
		return report, fmt.Errorf("cannot install the service: %w", err)
	}
	if report.Kind = o.Kind; o.Kind == "" {
		if report.Kind = had.Kind; !had.Installed {
			report.Kind = LogonTask
			report.Done = append(report.Done, whyTask(elevated()))
		}
	}
	kind, ok := kinds[report.Kind]
	if !ok {
		return report, fmt.Errorf("cannot install a %s on Windows; it has --service and --task", report.Kind)
	}
	if err := kind.install(ctx, o, &report); err != nil {
		return report, fmt.Errorf("cannot install the %s: %w", report.Kind, err)
	}
	if had.Installed && had.Kind != report.Kind {
		if err := kinds[had.Kind].remove(ctx); err != nil {
			return report, errors.Join(fmt.Errorf("cannot take the %s away, which was installed before: %w", had.Kind, err), kind.remove(ctx))
		}
		report.Done = append(report.Done, "Took away the "+string(had.Kind)+" that was installed before.")
	}
	if !had.Running {
		report.Next = append(report.Next, HintStart)
	}
	return report, nil
}

// whyTask says why a logon task was taken when nothing was asked for.
func whyTask(elevated bool) string {
	why := "Took a logon task: it needs no password and no administrator, and runs while you are logged on."
	if elevated {
		return why + " For a service, which runs from the computer's start on and needs your password: intermission service install --service"
	}
	return why + " A service, which runs from the computer's start on, needs your password and a prompt that was opened as administrator: intermission service install --service"
}

// Removable says why a service of this kind can't be taken away by who asks; it is
// asked before anything is stopped.
func Removable(kind ServiceKind) error {
	if kind == WindowsService && !elevated() {
		return fmt.Errorf("cannot remove the %s: open a prompt as administrator for it; nothing was changed", kind)
	}
	return nil
}

func (s Service) uninstall(ctx context.Context) (ServiceReport, error) {
	report := ServiceReport{Done: []string{}, Next: []string{}}
	kind, st, err := s.installed(ctx)
	if err != nil {
		return report, err
	}
	report.Kind = st.Kind
	if err := Removable(st.Kind); err != nil {
		return report, err
	}
	if err := untilStopped(ctx, kind); err != nil {
		return report, fmt.Errorf("cannot stop the %s: %w", st.Kind, err)
	}
	if err := kind.remove(ctx); err != nil {
		return report, fmt.Errorf("cannot remove the %s: %w", st.Kind, err)
	}
	report.Done = append(report.Done, fmt.Sprintf("Removed the %s %s.", st.Kind, st.Definition))
	if st.Kind == WindowsService {
		report.Done = append(report.Done, "Your account keeps the right to log on as a service: another service may need it.")
	}
	return report, nil
}

// untilStopped stops it, or waits until one that was told to end by its control has.
func untilStopped(ctx context.Context, kind windowsKind) (err error) {
	leaves(ctx, func() bool {
		err = kind.stop(ctx)
		return errors.Is(err, ErrStopByControl)
	})
	return err
}

// settles is how long a supervisor that has ended just now may be seen to run still.
const settles = 2 * time.Second

// leaves tells whether what seems to run doesn't, perhaps a moment later: a supervisor
// that has handed over is gone before the system has noticed.
func leaves(ctx context.Context, runs func() bool) bool {
	tick := time.NewTicker(statePoll)
	defer tick.Stop()
	for end := time.Now().Add(settles); runs(); {
		if ctx.Err() != nil || time.Now().After(end) {
			return false
		}
		<-tick.C
	}
	return true
}

func (s Service) start(ctx context.Context) error {
	kind, st, err := s.installed(ctx)
	if err != nil {
		return err
	}
	if err := kind.start(ctx); err != nil {
		return fmt.Errorf("cannot start the %s: %w", st.Kind, err)
	}
	return nil
}

func (s Service) stop(ctx context.Context) error {
	kind, st, err := s.installed(ctx)
	if err != nil {
		return err
	}
	if err := kind.stop(ctx); err != nil {
		return fmt.Errorf("cannot stop the %s: %w", st.Kind, err)
	}
	return nil
}

func (s Service) status(ctx context.Context) (ServiceStatus, error) {
	_, st, err := s.installed(ctx)
	if errors.Is(err, ErrNotInstalled) {
		err = nil
	}
	return st, err
}

// ServiceOutputLost says that what a service prints is of no use: nobody reads it.
const ServiceOutputLost = true
