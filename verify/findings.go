package verify

import (
	"cmp"
	"fmt"
)

// findings are the differences of one check, by what they mean.
type findings struct {
	wrong   []string // contradicts the oracle whatever else comes
	short   []string // less than expected: a fault, unless the rest may still come or has been there
	unknown []string // cannot be told from what is in the topic
	notes   []string // worth saying, but allowed
	beside  []string // topics that were compared with the one that is checked: what is short may have been deleted there too
}

func (f *findings) wrongf(format string, args ...any) {
	f.wrong = append(f.wrong, fmt.Sprintf(format, args...))
}
func (f *findings) shortf(format string, args ...any) {
	f.short = append(f.short, fmt.Sprintf(format, args...))
}
func (f *findings) unknownf(format string, args ...any) {
	f.unknown = append(f.unknown, fmt.Sprintf(format, args...))
}
func (f *findings) notef(format string, args ...any) {
	f.notes = append(f.notes, fmt.Sprintf(format, args...))
}

// incomplete are the findings to begin with where a check needs all records of a topic: if some are gone, it cannot tell.
func (g *grader) incomplete(topic string) findings {
	var f findings
	if gone := g.deleted(topic); gone != "" {
		f.unknown = append(f.unknown, gone)
	}
	return f
}

// maxDetails bounds the differences listed for one check.
const maxDetails = 12

// check makes a check of the findings about a topic.
func (g *grader) check(name, topic, want, got string, f findings) Check {
	c := Check{Name: name, Want: want, Got: cmp.Or(got, "nothing"), Verdict: Pass}
	if len(f.unknown) > 0 {
		c.Verdict = Unknown
	}
	var why []string
	if len(f.short) > 0 {
		if g.lag != "" {
			why = append(why, g.lag)
		}
		for _, t := range append([]string{topic}, f.beside...) {
			if gone := g.deleted(t); gone != "" {
				why = append(why, gone)
			}
		}
		if len(why) > 0 {
			c.Verdict = worse(c.Verdict, Unknown)
		} else {
			c.Verdict = Fail
		}
	}
	if len(f.wrong) > 0 {
		c.Verdict = Fail
	}
	for _, list := range [][]string{f.wrong, f.short, f.unknown, f.notes} {
		c.Details = append(c.Details, list...)
	}
	if more := len(c.Details) - maxDetails; more > 0 {
		c.Details = append(c.Details[:maxDetails], fmt.Sprintf("and %d more", more))
	}
	c.Details = append(why, c.Details...)
	return c
}
