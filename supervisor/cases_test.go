package supervisor

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// cases are the faults from the field, with the tests that hold each, by the directory
// from the module's root. Where a real server can show a case it is conformance that
// holds it, against OpenCode 1.18 and the dev server in both its kinds.
var cases = []struct {
	name  string
	tests string
}{
	1:  {"everything resumed at start", "supervisor/conformance.TestConformance supervisor/conformance.TestAlone restart.TestParkThreeTimesMakesOneSuspension"},
	2:  {"background subagents have a way of their own", "supervisor/conformance.TestBackgroundJobs restart.TestJobsWaitUnderTheirSession"},
	3:  {"one suspension, twenty clicks", "supervisor/conformance.TestConformance tray.TestTwoTraysTwentyClicks supervisor/control.TestTwentyResumes"},
	4:  {"a tool in flight", "supervisor/conformance.TestConformance supervisor/opencode.TestToolStatus supervisor/opencode.TestToolStatusV1"},
	5:  {"the directory is gone", "restart.TestChecksBeforeConsent tray.TestDirectoryIsBack"},
	6:  {"the model answers and stops at once", "restart.TestStartedAndEndedAtOnce restart.TestAcceptedAndThenNothing"},
	7:  {"it waited for a permission or a question", "supervisor.TestWhatItWaitedForIsKnownAfterACrash supervisor.TestWhatASessionWaitsForIsTold supervisor/opencode.TestWhatIsAskedIsTold"},
	8:  {"dismissing a parent", "restart.TestDismissingAParentDismissesItsSubagents supervisor/conformance.TestBackgroundJobs"},
	9:  {"the session was deleted", "restart.TestChecksBeforeConsent supervisor/opencode.TestDeliverV1Verdicts supervisor/opencode.TestDeliverV2Verdicts"},
	10: {"resume always fails", "restart.TestResumeAlwaysFails supervisor/opencode.TestDeliverV2Verdicts"},
	11: {"a crash loop by resume", "supervisor/conformance.TestConformance restart.TestFailureDeathAfterTheExecutionStarted"},
	12: {"archived and claimed", "restart.TestArchivedAndClaimedIsSettledAndNeverOffered"},
	13: {"port taken", "supervisor.TestPortTaken supervisor.TestAPortThatIsTakenIsNoLoop"},
	14: {"a slow incumbent", "supervisor.TestFrozenServerIsReplacedNeverDoubled"},
	15: {"kill -9 of the supervisor", "supervisor/conformance.TestConformance supervisor/conformance.TestKillMatrix packaging/lab.TestService"},
	16: {"the database is locked", "supervisor/opencode.TestClearWaitsForTheLock supervisor/opencode.TestClearKeepsItsBudget supervisor.TestAFailedParkKeepsEverybodyOut"},
	17: {"the shim", "supervisor.TestShim"},
	18: {"terminal closed, Ctrl-C in a shared console", "supervisor/conformance.TestTerminalSignals platform.TestStartGivesTheChildNothingOfOurs"},
	19: {"a launcher's small PATH", "platform.TestLoginPath platform.TestLoginPathEndsAHangingShellAndItsChildren supervisor/opencode.TestLocateLooksInOrder supervisor/opencode.TestLocateSaysWhatFailsOfALoginShell"},
	20: {"stopped from outside on purpose", "supervisor.TestStoppedFromOutsideThenSuccessorIsAdopted"},
	21: {"the child upgrades itself", "supervisor.TestReplacedProgramIsOneControlledStart"},
	22: {"dies at once, silently", "supervisor.TestNotReadyIsToldApart platform.TestWaitTellsHowItEnded"},
	23: {"never healthy", "supervisor.TestNotReadyIsToldApart supervisor/opencode.TestHealth supervisor/opencode.TestHealthOfWhatDoesNotAnswer"},
	24: {"a stale registration", "supervisor/opencode.TestDiscover platform.TestSignal platform.TestIdentify"},
	25: {"Windows has no SIGTERM", "packaging/wine.TestService packaging/wine.TestPlatform"},
	26: {"a drain slower than the service manager's limit", "supervisor.TestWhatHoldsAStopUpIsNamed packaging/lab.TestReboot"},
	27: {"the same item clicked twice", "tray.TestStaleClicksDoNothing tray.TestTwentyClicks"},
	28: {"a menu item removed while someone waits for its click", "tray.TestRemovedIsNotClicked"},
	29: {"no session bus, no host", "tray.TestHosts tray.TestNoDesktop platform.TestKeepRegisteredWithoutAHost"},
	30: {"nothing changed", "tray.TestNothingChangedIsNoTraffic tray.TestNothingChangedIsNoCall"},
	31: {"a title of anything", "tray.TestModel supervisor/control.TestTextOfSessionsIsCleaned platform.TestNoticeText restart.TestPlainText"},
	32: {"fifty suspensions", "tray.TestModel tray.TestNoticesAreCoalesced tray.TestOneNoticeAtStartup"},
	33: {"quit the tray", "tray.TestQuit"},
}

func TestCasesAreHeld(t *testing.T) {
	t.Parallel()
	there := map[string]bool{}
	for _, room := range []string{"restart", "supervisor", "supervisor/*", "platform", "tray", "packaging/*"} {
		files, err := filepath.Glob(filepath.Join("..", room, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			dir, err := filepath.Rel("..", filepath.Dir(file))
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range parsed.Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					there[filepath.ToSlash(dir)+"."+f.Name.Name] = true
				}
			}
		}
	}
	for number, c := range cases {
		if tests := strings.Fields(c.tests); number > 0 && len(tests) == 0 {
			t.Errorf("case %d is held by no test", number)
		}
		for _, name := range strings.Fields(c.tests) {
			if !there[name] {
				t.Errorf("case %d, %s: there is no %s", number, c.name, name)
			}
		}
	}
}
