package restart

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// cases are the faults from the field that tests of this package hold, by the number
// and name of their case; the table in ../supervisor has all of them.
var cases = []struct {
	number int
	name   string
	tests  string
}{
	{1, "everything resumed at start", "TestParkFromBeforeUsInfersNothing TestParkThreeTimesMakesOneSuspension"},
	{2, "background subagents have a way of their own", "TestJobsWaitUnderTheirSession TestSubagentsAreNeverShownByThemselves TestAJobKeepsItsSessionWaiting"},
	{3, "one suspension, twenty clicks", "TestASuspensionIsConsumedOnceByTwentyProcesses TestASuspensionIsConsumedOnceByTwentyGoroutines TestOneSuspensionTwentyClicks"},
	{4, "a tool in flight", "TestFailureAnInterruptedToolIsShown"},
	{5, "the directory is gone", "TestChecksBeforeConsent TestAQueuedConsentIsCheckedAgainBeforeItIsSent"},
	{6, "the model answers and stops at once", "TestStartedAndEndedAtOnce TestAcceptedAndThenNothing"},
	{7, "it waited for a permission or a question", "TestWhatASessionWaitedForIsKept"},
	{8, "dismissing a parent", "TestDismissingAParentDismissesItsSubagents"},
	{9, "the session was deleted", "TestChecksBeforeConsent TestLifecycleDeletedOrArchivedClearsClaimAndSuspension"},
	{10, "resume always fails", "TestResumeAlwaysFails TestPutBackIsTheVerySameSuspension"},
	{11, "a crash loop by resume", "TestFailureDeathAfterTheExecutionStarted"},
	{12, "archived and claimed", "TestArchivedAndClaimedIsSettledAndNeverOffered"},
	{16, "the database is locked", "TestParkBrokenOffAnywhereMakesOneSuspension TestParkSweepsAgainWhenTheDatabaseChanges"},
	{31, "a title of anything", "TestPlainText TestPlainTextIsAlwaysFitToBeShown TestTextOfASessionIsPlain"},
}

func TestCasesAreHeld(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				there[f.Name.Name] = true
			}
		}
	}
	for _, c := range cases {
		for _, name := range strings.Fields(c.tests) {
			if !there[name] {
				t.Errorf("case %d, %s: there is no %s", c.number, c.name, name)
			}
		}
	}
}
