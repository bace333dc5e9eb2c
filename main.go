// Command intermission keeps the OpenCode server running in the background, and
// makes sure that no session goes on working after a restart until its user says
// so. Its commands, files and exit statuses are those of its README.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/DeRuina/timberjack"
	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"intermission/packaging"
	"intermission/platform"
	"intermission/supervisor"
	"intermission/supervisor/control"
	"intermission/supervisor/demo"
	"intermission/supervisor/devserver"
	"intermission/supervisor/doctor"
	"intermission/supervisor/service"
	"intermission/tray"
)

// version is set by the linker: -X main.version=1.2.3.
var version = ""

// commands is the command line.
type commands struct {
	JSON bool `name:"json" help:"Print JSON, errors too."`

	Run        runCommand        `cmd:"" help:"Run the supervisor in the foreground: what the service starts."`
	Status     serverCommand     `cmd:"" help:"Show supervisor, server and counts."`
	Pending    pendingCommand    `cmd:"" help:"List the sessions that wait for consent."`
	Show       showCommand       `cmd:"" help:"Show everything known about one suspension, and its journal."`
	Resume     resumeCommand     `cmd:"" help:"Consent to one session: it goes on working."`
	Dismiss    dismissCommand    `cmd:"" help:"Settle one session without resuming it; its history stays."`
	Interrupt  interruptCommand  `cmd:"" help:"Interrupt a session at work: it stops, and nothing is suspended."`
	Open       openCommand       `cmd:"" help:"Open a session in OpenCode's own interface, in this terminal."`
	Start      serverCommand     `cmd:"" help:"Start the server, and keep it started."`
	Stop       serverCommand     `cmd:"" help:"Stop the server, and keep it stopped."`
	Restart    serverCommand     `cmd:"" help:"Stop the server and start it again."`
	Logs       logsCommand       `cmd:"" help:"Print the server's output."`
	Tray       trayCommand       `cmd:"" help:"Show the tray: what is pending and at work, in the desktop's menu."`
	Service    serviceCommands   `cmd:"" help:"Have the supervisor run in the background, from each login on."`
	Doctor     doctorCommand     `cmd:"" help:"Check all that it depends on, with one act for what is wrong."`
	Demo       demoCommand       `cmd:"" help:"Show what all this is for, in a temporary directory."`
	Completion completionCommand `cmd:"" help:"Print the completion script of a shell."`
	Version    versionCommand    `cmd:"" help:"Print the version."`
	Man        manCommand        `cmd:"" hidden:"" help:"Print the manual page."`
	Devserver  devserverCommand  `cmd:"" hidden:"" passthrough:"" help:"Run the embedded development server."`
}

// exitStatuses gives each error code the exit status of the command that meets it.
var exitStatuses = map[string]int{
	control.CodeFailed:       1,
	control.CodeUsage:        2,
	control.CodeAmbiguous:    2,
	control.CodeNoSupervisor: 3,
	control.CodeNotPending:   4,
	control.CodeRefused:      5,
	control.CodeUnknown:      6,
}

// outcomeStatuses gives the exit status of a resume that was answered.
var outcomeStatuses = map[string]int{"resumed": 0, "queued": 0, "already": 4, "refused": 5, "unknown": 6}

// exitStatus ends the program with a status and prints nothing more.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// ExitStatus is what a service manager is told.
func (s exitStatus) ExitStatus() int { return int(s) }

// surroundings is what a command sees of the process.
type surroundings struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	asks           bool // a person can be asked: the input is a terminal
	shows          bool // the output is a terminal
	json           bool
	app            *kong.Application
}

func main() {
	os.Exit(execute(os.Args[1:], &surroundings{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv,
		asks:  term.IsTerminal(int(os.Stdin.Fd())),
		shows: term.IsTerminal(int(os.Stdout.Fd())),
	}))
}

// execute runs one command and returns its exit status.
func execute(args []string, s *surroundings) int {
	var c commands
	helped := false
	parser, err := kong.New(&c, kong.Name("intermission"),
		kong.Description("Keeps the OpenCode server running. After a restart, no session goes on until you say so."),
		kong.Writers(s.stdout, s.stderr), kong.Exit(func(int) { helped = true }), kong.BindToProvider(s.client))
	if err != nil {
		return s.fail(err)
	}
	s.app = parser.Model
	parsed, err := parser.Parse(args)
	if helped {
		return 0
	}
	s.json = c.JSON
	if err != nil {
		s.json = s.json || asksJSON(args)
		return s.fail(&control.Error{Code: control.CodeUsage, Message: err.Error() + "; see: " + helpOf(err)})
	}
	if err := parsed.Run(s); err != nil {
		return s.fail(err)
	}
	return 0
}

// helpOf is the help of the command that was called wrongly.
func helpOf(err error) string {
	if wrong := (*kong.ParseError)(nil); errors.As(err, &wrong) && wrong.Context != nil {
		if node := wrong.Context.Selected(); node != nil && !node.Hidden {
			return node.FullPath() + " --help"
		}
	}
	return "intermission --help"
}

// asksJSON finds --json in a command line that could not be parsed.
func asksJSON(args []string) bool {
	for _, a := range args {
		if a == "--" {
			return false
		}
		if a == "--json" {
			return true
		}
	}
	return false
}

// fail reports err to a person, with --json to a script too, and returns the exit status.
func (s *surroundings) fail(err error) int {
	var status exitStatus
	if errors.As(err, &status) {
		return int(status)
	}
	e := control.AsError(err)
	if s.json {
		_ = s.printJSON(map[string]*control.Error{"error": e})
	}
	fmt.Fprintln(s.stderr, "intermission:", control.Message(e))
	if status, known := exitStatuses[e.Code]; known {
		return status
	}
	return exitStatuses[control.CodeFailed]
}

func (s *surroundings) printJSON(v any) error {
	return control.WriteJSON(s.stdout, v)
}

// print prints v with --json, its text otherwise.
func (s *surroundings) print(v any, text string) error {
	if s.json {
		return s.printJSON(v)
	}
	_, err := io.WriteString(s.stdout, text)
	return err
}

// text renders for standard output, in colour only on a terminal.
func (s *surroundings) text() control.Text {
	colour := s.shows && s.getenv("NO_COLOR") == "" && s.getenv("TERM") != "dumb"
	return control.Text{Color: colour, Now: time.Now()}
}

func (s *surroundings) client() (*control.Client, error) {
	paths, err := platform.FindPaths(s.getenv)
	if err != nil {
		return nil, err
	}
	c := control.Dial(paths.LiveSocket())
	c.StartAct = func() string { return service.StartAct(context.Background(), s.getenv) }
	return c, nil
}

// untilStopped gives a context that ends with SIGINT, SIGTERM, or SIGHUP when the
// terminal is closed; the signal is its cause.
func untilStopped() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}

type runCommand struct {
	Quiet   bool `help:"Write the log to its file only."`
	Service bool `help:"As the service does: the server gets what your login shell exports."`
}

func (c *runCommand) Run(s *surroundings) error {
	platform.HideConsole()
	// A reader of our standard error that goes away must not end us. Ignoring the
	// signal would do the same to the server, which inherits that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := untilStopped()
	defer stop()
	return platform.UnderManager(ctx, "intermission", func(ctx context.Context, m *platform.ServiceManager) error {
		if !c.Service {
			m.NotOurs()
		}
		err := c.supervise(ctx, s, m)
		if errors.Is(err, supervisor.ErrHandedOver) {
			return exitStatus(platform.HandedOverStatus)
		}
		return err
	})
}

func (c *runCommand) supervise(ctx context.Context, s *surroundings, m *platform.ServiceManager) error {
	paths, err := platform.FindPaths(s.getenv)
	if err != nil {
		return err
	}
	config, fault := s.config(paths)
	if fault != nil {
		if !c.Service {
			return fault
		}
		config = supervisor.DefaultConfig() // without a supervisor nothing keeps what is unfinished from being resumed
	}
	log, err := openLog(paths, "intermission.log", config.Log)
	if err != nil {
		if !c.Service {
			return err
		}
		log = nowhere{io.Discard}
	}
	defer log.Close()
	handler := slog.Handler(slog.NewTextHandler(log, nil))
	switch {
	case c.Quiet, c.Service && platform.ServiceOutputLost:
	case c.Service: // the system's journal has other readers: what the server wrote, which a reason quotes, is for our own file
		handler = slog.NewMultiHandler(handler, slog.NewTextHandler(s.stderr, &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == "reason" {
					return slog.Attr{}
				}
				return a
			},
		}))
	default:
		handler = slog.NewMultiHandler(handler, slog.NewTextHandler(s.stderr, nil))
	}
	return supervisor.Run(ctx, supervisor.Options{
		Version: programVersion(), Paths: paths, Config: config, Log: slog.New(handler),
		Manager: m, LoginEnvironment: c.Service, Program: supervisor.ThisProgram(), Fault: fault,
	})
}

// nowhere is a log where there is none.
type nowhere struct{ io.Writer }

func (nowhere) Close() error { return nil }

// config reads the configuration.
func (s *surroundings) config(paths platform.Paths) (supervisor.Config, error) {
	return supervisor.ConfigFor(paths, s.getenv)
}

// openLog opens a log of ours, rotated and capped.
func openLog(paths platform.Paths, name string, bounds supervisor.LogConfig) (io.WriteCloser, error) {
	if err := platform.EnsurePrivateDir(paths.Log); err != nil {
		return nil, err
	}
	const mega = 1 << 20
	return &timberjack.Logger{
		Filename: filepath.Join(paths.Log, name), FileMode: 0o600,
		MaxSize:    int((bounds.MaxSize + mega - 1) / mega),
		MaxBackups: max(bounds.Keep, 1), // its 0 keeps all
	}, nil
}

// onOff is a choice of a command line; what else stands there is told in plain words.
type onOff string

// Decode implements kong.MapperValue.
func (v *onOff) Decode(ctx *kong.DecodeContext) error {
	token := ctx.Scan.Pop()
	word, _ := token.Value.(string)
	switch *v = onOff(word); {
	case !token.IsValue():
		return errors.New("must be on or off")
	case word != "on" && word != "off":
		return fmt.Errorf("must be on or off, not %q", word)
	}
	return nil
}

type trayCommand struct {
	Autostart *onOff `enum:"on,off" placeholder:"on|off" help:"Switch its start at login on or off, and do no more."`
}

func (c *trayCommand) Run(s *surroundings) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find this program itself: %w", err)
	}
	if c.Autostart != nil {
		on := *c.Autostart == "on"
		text := "The tray is not started at login any more.\n"
		if on {
			text = "The tray is started at login. To start it now: intermission tray\n"
		}
		if on { // what stands in an entry must be there at the next login
			if self, _, err = platform.StableProgram(context.Background(), self, s.getenv, "version"); err != nil {
				return err
			}
		}
		if err := tray.StartAtLogin(self, on); err != nil {
			return err
		}
		return s.print(map[string]bool{"autostart": on}, text)
	}
	platform.HideConsole()
	paths, err := platform.FindPaths(s.getenv)
	if err != nil {
		return err
	}
	options := tray.Options{Version: programVersion()}
	config, err := s.config(paths)
	if err != nil { // at login nobody sees an error but in the menu
		config, options.ConfigFault = supervisor.DefaultConfig(), err.Error()+"; the tray goes by the defaults: mend it, and start the tray again"
	}
	log, err := openLog(paths, "tray.log", config.Log)
	if err != nil {
		return err
	}
	defer log.Close()
	options.Notify, options.StallAfter = config.Notify.Enabled, config.Notify.StallAfter
	options.Home, _ = os.UserHomeDir() // without it directories are shown in full
	for _, q := range config.Notify.Quiet {
		options.Quiet = append(options.Quiet, tray.QuietHours(q))
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // whoever reads our standard error may go away
	ctx, stop := untilStopped()
	defer stop()
	err = tray.Run(ctx, tray.Config{
		Options: options, Paths: paths, Self: self,
		Log: slog.New(slog.NewMultiHandler(slog.NewTextHandler(log, nil), slog.NewTextHandler(s.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))),
	})
	if running := (tray.AlreadyRunningError{}); errors.As(err, &running) {
		return s.print(map[string]bool{"already": true}, running.Error()+"\n")
	}
	return err
}

// serverCommand is each command that one call answers with the status.
type serverCommand struct{}

func (serverCommand) Run(s *surroundings, client *control.Client, parsed *kong.Context) error {
	ctx, act := context.Background(), parsed.Command()
	pending := 0
	if act == "stop" {
		before, err := client.Status(ctx)
		if err != nil {
			return err
		}
		pending = before.Sessions.Pending
	}
	status, err := map[string]func(context.Context) (control.Status, error){
		"status": client.Status, "start": client.StartServer, "stop": client.StopServer, "restart": client.RestartServer,
	}[act](ctx)
	if err != nil {
		return err
	}
	text := s.text().Status(status)
	if act == "stop" {
		text += s.text().Suspended(status.Sessions.Pending - pending)
	}
	return s.print(status, text)
}

type pendingCommand struct{}

func (pendingCommand) Run(s *surroundings, client *control.Client) error {
	pending, err := client.Pending(context.Background())
	if err != nil {
		return err
	}
	return s.print(pending, s.text().Pending(pending))
}

type showCommand struct {
	ID string `arg:"" help:"A session id, or an unambiguous beginning of one."`
}

func (c *showCommand) Run(s *surroundings, client *control.Client) error {
	detail, err := client.Show(context.Background(), c.ID)
	if err != nil {
		return err
	}
	return s.print(detail, s.text().Detail(detail))
}

// chosen names one suspension.
type chosen struct {
	ID string `arg:"" help:"A session id, or an unambiguous beginning of one."`
	At *int64 `placeholder:"TIME" help:"The suspension that was seen, by its time in milliseconds."`
}

// look gives the session in full, and the suspension that is meant: what stands
// now is what an act without --at is about.
func (c *chosen) look(ctx context.Context, client *control.Client) (d control.Detail, at int64, err error) {
	if c.At != nil && *c.At < 1 {
		return d, 0, &control.Error{Code: control.CodeUsage, Message: fmt.Sprintf("--at %d is no time of a suspension; take it from: intermission show %s", *c.At, c.ID)}
	}
	d, err = client.Show(ctx, c.ID)
	if c.At != nil {
		return d, *c.At, err
	}
	return d, d.SuspendedAt, err
}

type resumeCommand struct {
	chosen
	Yes bool `short:"y" help:"Consent without being asked."`
}

func (c *resumeCommand) Run(s *surroundings, client *control.Client) error {
	if !c.Yes && !s.asks {
		return &control.Error{Code: control.CodeUsage, Message: "no terminal to ask for consent on; to consent without being asked, add --yes"}
	}
	ctx := context.Background()
	detail, at, err := c.look(ctx, client)
	if err != nil {
		return err
	}
	result := control.Result{ID: detail.ID, Outcome: "already", Reason: "that suspension is not the one that waits; see: intermission show " + detail.ID}
	if c.Yes || detail.Pending && detail.SuspendedAt == at { // else there is nothing to ask about
		if !c.Yes {
			err = s.confirm(detail)
		}
		if err == nil {
			result, err = client.Resume(ctx, detail.ID, at)
		}
		if err != nil {
			return err
		}
	}
	if err := s.print(result, s.text().Result(result)); err != nil {
		return err
	}
	status, known := outcomeStatuses[result.Outcome]
	if !known {
		status = outcomeStatuses["unknown"]
	}
	if status != 0 {
		return exitStatus(status)
	}
	return nil
}

// confirm shows what will go on and asks for consent to it; nil is a yes.
func (s *surroundings) confirm(d control.Detail) error {
	text := s.text()
	text.Color = false // standard error may be another thing
	if s.agrees(text.Suspension(d.Suspension) + "\nResume this session now? [y/N] ") {
		return nil
	}
	return &control.Error{Code: control.CodeFailed, Message: "not resumed; it stays pending"}
}

// agrees asks on the terminal; only yes is a yes.
func (s *surroundings) agrees(question string) bool {
	fmt.Fprint(s.stderr, question)
	line, err := bufio.NewReader(s.stdin).ReadString('\n')
	if err != nil {
		fmt.Fprintln(s.stderr) // the answer ended no line
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}

type dismissCommand struct{ chosen }

func (c *dismissCommand) Run(s *surroundings, client *control.Client) error {
	ctx := context.Background()
	detail, at, err := c.look(ctx, client)
	if err != nil {
		return err
	}
	dismissed, err := client.Dismiss(ctx, detail.ID, at)
	if err != nil {
		return err
	}
	return s.print(dismissed, s.text().Dismissed(dismissed))
}

type interruptCommand struct {
	ID string `arg:"" help:"A session id, or an unambiguous beginning of one."`
	At *int64 `placeholder:"TIME" help:"The work that was seen, by its startedAt in milliseconds."`
}

func (c *interruptCommand) Run(s *surroundings, client *control.Client) error {
	at := int64(0)
	if c.At != nil {
		if at = *c.At; at < 1 {
			return &control.Error{Code: control.CodeUsage, Message: fmt.Sprintf("--at %d is no time of a start; take it from: intermission status --json", at)}
		}
	}
	interrupted, err := client.Interrupt(context.Background(), c.ID, at)
	if err != nil {
		return err
	}
	return s.print(interrupted, s.text().Interrupted(interrupted))
}

type openCommand struct {
	ID string `arg:"" help:"A session id, or an unambiguous beginning of one."`
}

func (c *openCommand) Run(s *surroundings, client *control.Client) error {
	if !s.asks || !s.shows {
		return &control.Error{Code: control.CodeUsage, Message: "no terminal to open the session in; call it in one, with input and output as they are there"}
	}
	a, err := client.Attach(context.Background(), c.ID)
	if err != nil {
		return err
	}
	client.Close()
	env := slices.DeleteFunc(os.Environ(), func(entry string) bool { // of two entries with one name, who is called takes the first
		name, _, _ := strings.Cut(entry, "=")
		_, set := a.Env[name]
		return set
	})
	for name, value := range a.Env {
		env = append(env, name+"="+value)
	}
	err = platform.Become(a.Argv, a.Dir, env)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exitStatus(exit.ExitCode())
	}
	return err
}

type logsCommand struct {
	Follow bool `short:"f" help:"Print what comes, until interrupted."`
	Lines  int  `short:"n" default:"100" placeholder:"N" help:"How many lines (100); all with --lines=-1."`
}

func (c *logsCommand) Run(s *surroundings, client *control.Client) error {
	out := s.stdout
	switch {
	case s.json:
		out = control.JSONLines(out)
	case s.shows:
		out = control.PlainLines(out)
	}
	return client.Logs(context.Background(), out, c.Lines, c.Follow)
}

// serviceCommands are the acts on the background service.
type serviceCommands struct {
	Install   serviceInstallCommand   `cmd:"" help:"Install the service for you, over an older one too, and start it."`
	Uninstall serviceUninstallCommand `cmd:"" help:"Stop the service and take it away; what waits for your consent is kept."`
	Start     serviceCommand          `cmd:"" help:"Start the service, and say what came of its server."`
	Stop      serviceCommand          `cmd:"" help:"Stop the service: sessions at work are suspended, and the server is stopped."`
	Restart   serviceCommand          `cmd:"" help:"Replace the supervisor; the server goes on, and the next one adopts it."`
	Status    serviceStatusCommand    `cmd:"" help:"Show how the service is installed, and whether it runs."`
}

// background is the service of whoever calls.
func (s *surroundings) background() (service.Background, error) {
	self, err := os.Executable()
	if err != nil {
		return service.Background{}, fmt.Errorf("cannot find this program itself: %w", err)
	}
	return service.Find(context.Background(), self, programVersion(), s.getenv)
}

type serviceInstallCommand struct {
	Service bool   `xor:"kind" help:"Windows: as a service under your account, whose password is asked for."`
	Task    bool   `xor:"kind" help:"Windows: as a task that runs at your logon."`
	System  bool   `xor:"kind" and:"whose" help:"Linux: as a unit of the system's own manager, installed by root."`
	User    string `and:"whose" placeholder:"NAME" help:"With --system: the user whose sessions they are."`
	Linger  bool   `help:"Linux: let it run from boot on, and after logout too."`
	NoStart bool   `help:"Don't start it now."`
}

func (c *serviceInstallCommand) Run(s *surroundings) error {
	b, err := s.background()
	if err != nil {
		return err
	}
	o := service.Options{NoStart: c.NoStart}
	o.User, o.Linger = c.User, c.Linger
	switch {
	case c.Service:
		o.Kind = platform.WindowsService
	case c.Task:
		o.Kind = platform.LogonTask
	case c.System:
		o.Kind = platform.SystemdSystem
	}
	if s.asks {
		o.AskPassword = s.askPassword
	}
	report, err := b.Install(context.Background(), o)
	if err != nil {
		return err
	}
	return s.print(report, service.ReportText(report))
}

// askPassword asks on the terminal, without echo.
func (s *surroundings) askPassword(prompt string) (string, error) {
	fmt.Fprint(s.stderr, prompt)
	password, err := term.ReadPassword(int(os.Stdin.Fd()))
	fmt.Fprintln(s.stderr)
	return string(password), err
}

type serviceUninstallCommand struct {
	Purge bool `help:"Remove ledger and logs too: what waits for consent is lost."`
	Yes   bool `short:"y" help:"Purge without being asked."`
}

func (c *serviceUninstallCommand) Run(s *surroundings) error {
	b, err := s.background()
	if err != nil {
		return err
	}
	if c.Purge && !c.Yes {
		if !s.asks {
			return &control.Error{Code: control.CodeUsage, Message: "no terminal to ask on whether ledger and logs are to be removed; to remove them without being asked, add --yes"}
		}
		if !s.agrees("Remove the ledger, with all sessions that wait for your consent, and the logs? [y/N] ") {
			return &control.Error{Code: control.CodeFailed, Message: "nothing was removed"}
		}
	}
	report, err := b.Uninstall(context.Background(), c.Purge)
	if err != nil {
		return err
	}
	if tray.StartsAtLogin(b.Argv[0]) {
		report.Next = append(report.Next, "The tray is still started at login; to end that: intermission tray --autostart off")
	}
	return s.print(report, service.ReportText(report))
}

// serviceCommand is each act on the service that is answered with its status.
type serviceCommand struct{}

func (serviceCommand) Run(s *surroundings, parsed *kong.Context) error {
	b, err := s.background()
	if err != nil {
		return err
	}
	ctx := context.Background()
	act := strings.TrimPrefix(parsed.Command(), "service ")
	suspended := 0
	if act == "stop" {
		suspended = b.AtWork(ctx)
	}
	if err := map[string]func(context.Context) error{"start": b.Start, "stop": b.Stop, "restart": b.Restart}[act](ctx); err != nil {
		return err
	}
	status, err := b.After(ctx, act, suspended)
	if err != nil {
		return err
	}
	return s.print(status, service.StatusText(status))
}

// serviceStatusCommand exits with 3 when no supervisor runs, as other commands do.
type serviceStatusCommand struct{}

func (serviceStatusCommand) Run(s *surroundings) error {
	b, err := s.background()
	if err != nil {
		return err
	}
	status, err := b.Status(context.Background())
	if err != nil {
		return err
	}
	if err := s.print(status, service.StatusText(status)); err != nil {
		return err
	}
	if !status.Running && status.Supervisor == nil {
		return exitStatus(exitStatuses[control.CodeNoSupervisor])
	}
	return nil
}

type doctorCommand struct {
	Bundle  string `placeholder:"FILE" help:"Write an archive for those who help: report, state and logs, without secrets and prompts."`
	Prompts bool   `help:"With --bundle: with what was said in sessions, and the server's output."`
	Force   bool   `help:"With --bundle: over a file that is there."`
}

func (c *doctorCommand) Run(s *surroundings) error {
	if c.Bundle == "" && (c.Prompts || c.Force) {
		return &control.Error{Code: control.CodeUsage, Message: "--prompts and --force are about a bundle; add --bundle FILE"}
	}
	b, err := s.background()
	if err != nil {
		return err
	}
	ctx := context.Background()
	o := doctor.Options{Version: b.Version, Program: b.Argv[0], Getenv: s.getenv, Service: &b.Service}
	report := doctor.Run(ctx, o)
	answer := struct {
		doctor.Report
		Bundle *doctor.Bundled `json:"bundle,omitempty"`
	}{Report: report}
	text := report.Text(s.text().Color)
	if c.Bundle != "" {
		bundled, err := doctor.Bundle(ctx, o, report, doctor.BundleOptions{Path: c.Bundle, Prompts: c.Prompts, Overwrite: c.Force})
		if err != nil {
			return err
		}
		answer.Bundle, text = &bundled, text+"\n"+bundled.Text()
	}
	if err := s.print(answer, text); err != nil {
		return err
	}
	if !report.OK {
		return exitStatus(exitStatuses[control.CodeFailed])
	}
	return nil
}

type versionCommand struct{}

func (versionCommand) Run(s *surroundings) error {
	v := programVersion()
	return s.print(map[string]string{"version": v}, "intermission "+v+"\n")
}

// programVersion is what the linker was told, else the module's version or revision.
func programVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return strings.TrimPrefix(info.Main.Version, "v")
}

type demoCommand struct {
	Yes bool `short:"y" help:"Resume without waiting for a key."`
}

func (c demoCommand) Run(s *surroundings) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("cannot find this program itself: %w", err)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // it cleans up, whoever has stopped reading
	ctx, stop := untilStopped()
	defer stop()
	out, report := s.stdout, io.Writer(nil)
	if s.json {
		out, report = s.stderr, s.stdout
	}
	return demo.Run(ctx, demo.Options{
		Self: self, Yes: c.Yes, In: s.stdin, Out: out, Report: report, Terminal: s.asks && s.shows, Colour: s.text().Color,
	})
}

type devserverCommand struct {
	Args []string `arg:"" optional:""`
}

func (c *devserverCommand) Run(s *surroundings) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // not SIGHUP: the real one dies of it
	defer stop()
	return exitStatus(devserver.Main(ctx, c.Args, s.getenv, s.stdout, s.stderr))
}

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (c *completionCommand) Run(s *surroundings) error {
	_, err := io.WriteString(s.stdout, packaging.Completion(s.app, c.Shell))
	return err
}

type manCommand struct {
	Date string `arg:"" help:"Of the release: 2026-11-30."`
}

func (c *manCommand) Run(s *surroundings) error {
	_, err := io.WriteString(s.stdout, packaging.Man(s.app, programVersion(), c.Date))
	return err
}
