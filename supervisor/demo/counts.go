package demo

import (
	"errors"
	"fmt"
)

// counts is what was counted in one run.
type counts struct {
	alone     int // requests that reached the model after the reboot, nobody asked: the server alone
	unasked   int // the same with intermission
	waiting   int // sessions that waited for consent
	resumed   int // requests of the resumed session, over all that followed
	dismissed int // requests of the dismissed session, over all that followed
	later     int // requests after one more reboot
	left      int // sessions that waited for consent then
}

// verdict is one line of the table.
type verdict struct {
	what    string
	want    string
	counted int
	good    bool
}

// verdicts holds each count against what was promised.
func (c counts) verdicts() []verdict {
	is := func(what string, counted, want int) verdict {
		return verdict{what, fmt.Sprint(want), counted, counted == want}
	}
	return []verdict{
		{"without intermission: executions nobody asked for", "> 0", c.alone, c.alone > 0},
		is("with intermission: executions nobody asked for", c.unasked, 0),
		is("with intermission: sessions that waited for consent", c.waiting, 2),
		is("one session resumed: continuations", c.resumed, 1),
		is("one session dismissed: continuations", c.dismissed, 0),
		is("one more reboot: further executions", c.later, 0),
		is("one more reboot: sessions that wait for consent", c.left, 0),
	}
}

// judge tells everything that is not as promised; nil when all is.
func (c counts) judge() error {
	var errs []error
	for _, v := range c.verdicts() {
		if !v.good {
			errs = append(errs, fmt.Errorf("%s: %d, not %s", v.what, v.counted, v.want))
		}
	}
	return errors.Join(errs...)
}
