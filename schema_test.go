package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/windowed-order-counter/lab/phases"
	"github.com/windowed-order-counter/lab/verify"
)

// schema is the part of JSON Schema 2020-12 that docs/verify.schema.json is written in. A file with any other keyword is refused.
type schema struct {
	Dialect     string `json:"$schema"`
	Title       string
	Description string
	Defs        map[string]*schema `json:"$defs"`

	Ref        string `json:"$ref"`
	Type       string
	Enum       []string
	Properties map[string]*schema
	Required   []string
	Additional *bool `json:"additionalProperties"`
	Items      *schema
	Minimum    float64
	MinLength  int
	MinItems   int
}

func readSchema() (*schema, error) {
	f, err := os.Open("docs/verify.schema.json")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	dec := json.NewDecoder(f)
	dec.DisallowUnknownFields()
	root := &schema{}
	return root, dec.Decode(root)
}

// faults lists what is wrong with a value that encoding/json has decoded.
func (s *schema) faults(defs map[string]*schema, at string, v any) (list []string) {
	if name, ok := strings.CutPrefix(s.Ref, "#/$defs/"); ok {
		return defs[name].faults(defs, at, v)
	}
	faultf := func(format string, args ...any) { list = append(list, at+": "+fmt.Sprintf(format, args...)) }
	kind := ""
	switch v := v.(type) {
	case map[string]any:
		kind = "object"
		for _, name := range s.Required {
			if _, there := v[name]; !there {
				faultf("no %s", name)
			}
		}
		for name, member := range v {
			if of := s.Properties[name]; of != nil {
				list = append(list, of.faults(defs, at+"."+name, member)...)
			} else if s.Additional != nil && !*s.Additional {
				faultf("%s is not described", name)
			}
		}
	case []any:
		if kind = "array"; len(v) < s.MinItems {
			faultf("%d items", len(v))
		}
		for i, item := range v {
			list = append(list, s.Items.faults(defs, fmt.Sprintf("%s[%d]", at, i), item)...)
		}
	case string:
		if kind = "string"; utf8.RuneCountInString(v) < s.MinLength {
			faultf("%d characters", utf8.RuneCountInString(v))
		}
	case float64:
		if kind = "integer"; v != float64(int64(v)) || v < s.Minimum {
			faultf("%v", v)
		}
	}
	if s.Type != "" && s.Type != kind {
		faultf("%v is no %s", v, s.Type)
	}
	if word, _ := v.(string); s.Enum != nil && !slices.Contains(s.Enum, word) {
		faultf("%v is none of %q", v, s.Enum)
	}
	return list
}

// conformity is an error that says what is wrong with a document. That its last field is the verdict is beyond a schema.
func conformity(document string) error {
	s, err := readSchema()
	if err != nil {
		return err
	}
	var v map[string]any
	if err := json.Unmarshal([]byte(document), &v); err != nil {
		return err
	}
	faults := s.faults(s.Defs, "$", v)
	if !strings.HasSuffix(document, fmt.Sprintf(`,"verdict":%q}`, v["verdict"])+"\n") {
		faults = append(faults, "the verdict is not last")
	}
	if len(faults) > 0 {
		return errors.New(strings.Join(faults, "\n"))
	}
	return nil
}

// conforms checks what a command of a script printed with --json: conforms FILE.
func conforms(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: conforms FILE")
	}
	ts.Check(conformity(ts.ReadFile(args[0])))
}

// Whatever a command that judges comes to, its JSON is as docs/verify.schema.json says, and nothing is in it that is not described there.
func TestJSONConformsToItsSchema(t *testing.T) {
	phase := func(v verify.Verdict, checks ...verify.Check) verify.PhaseReport {
		return verify.PhaseReport{Phase: 2, Checks: append([]verify.Check{}, checks...), Verdict: v}
	}
	check := func(v verify.Verdict, details ...string) verify.Check {
		return verify.Check{Name: "running counts", Want: "50", Got: "49", Verdict: v, Details: details}
	}
	report := func(reason string, phases ...verify.PhaseReport) verify.Report {
		return verify.Report{Phases: phases, Reason: reason}
	}
	explained := report("", phase(verify.Fail, check(verify.Fail)))
	explained.Causes = []string{"the feed was published twice"}
	notRun := phase(verify.NotRun)
	notRun.Reason = "orders.placed holds no event of a feed"
	for name, tt := range map[string]struct {
		outcome phases.Outcome
		code    int
	}{
		"pass":           {phases.Outcome{Report: report("", phase(verify.Pass, check(verify.Pass)), notRun)}, exitPass},
		"fail":           {phases.Outcome{Report: report("", phase(verify.Fail, check(verify.Fail, "store-\xff\x00\x1b has 49 of 50")))}, exitFail},
		"unknown":        {phases.Outcome{Report: report("interrupted", phase(verify.Unknown, check(verify.Unknown)))}, exitUnknown},
		"nothing there":  {phases.Outcome{Report: report("topic orders.placed does not exist")}, exitUnknown},
		"failed at once": {phases.Outcome{Err: errors.New("disk full")}, exitFail},
		"interrupted": {
			phases.Outcome{Report: report("", phase(verify.Pass, check(verify.Pass))), Err: &phases.StepError{Phase: 3, Err: phases.ErrInterrupted}}, exitUnknown,
		},
		"explained":             {phases.Outcome{Report: explained}, exitFail},
		"explained, and failed": {phases.Outcome{Report: explained, Err: errors.New("disk full")}, exitFail},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := tt.outcome.Write(&out, true, false); err != nil {
				t.Fatal(err)
			}
			if err := conformity(out.String()); err != nil {
				t.Errorf("%v\n%s", err, out.String())
			}
			if code := (&lab{stderr: os.Stderr}).exitCode(t.Context(), judged(tt.outcome.Verdict(), nil, true, nil)); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
		})
	}

	const good = `{"phases":[{"phase":1,"checks":[{"name":"a","want":"b","got":"c","verdict":"PASS"}],"verdict":"PASS"}],"verdict":"PASS"}` + "\n"
	if err := conformity(good); err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string][2]string{
		"unknown verdict":     {`"PASS"}]`, `"OK"}]`},
		"check without name":  {`"name":"a",`, ``},
		"empty want":          {`"want":"b"`, `"want":""`},
		"field too many":      {`"want":"b"`, `"want":"b","why":"c"`},
		"number for a text":   {`"got":"c"`, `"got":7`},
		"null for a list":     {`{"phases":[`, `{"details":null,"phases":[`},
		"phase 0":             {`"phase":1`, `"phase":0`},
		"half a phase":        {`"phase":1`, `"phase":1.5`},
		"empty details":       {`"got":"c"`, `"got":"c","details":[]`},
		"verdict not last":    {`"verdict":"PASS"}` + "\n", `"verdict":"PASS","reason":"x"}` + "\n"},
		"whole never not run": {`"verdict":"PASS"}` + "\n", `"verdict":"NOT RUN"}` + "\n"},
	} {
		if document := strings.Replace(good, edit[0], edit[1], 1); document == good || conformity(document) == nil {
			t.Errorf("%s: %s passes", name, document)
		}
	}
}
