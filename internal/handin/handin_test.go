package handin

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/windowed-order-counter/lab/internal/args"
	"github.com/windowed-order-counter/lab/verify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recording is a whole one, of a run with one record that is no order.
func recording(run, value string) []byte {
	lines := []string{
		`{"recording":{"format":"lab-recording","version":1,"lab":"v1","written":"2026-11-30T20:00:00Z","cluster":"c","run":"` + run + `","application":"order-counter"}}`,
		`{"topic":{"name":"orders.placed","configs":{},"partitions":[{"start":0,"end":1,"stable":1}]}}`,
		`{"record":{"topic":"orders.placed","partition":0,"offset":0,"time":1,"key":"k","value":"` + value + `"}}`,
		`{"end":{"lines":3,"records":1}}`,
	}
	return compress([]byte(strings.Join(lines, "\n") + "\n"))
}

func compress(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(data)
	if err := errors.Join(err, w.Close()); err != nil {
		panic(err)
	}
	return b.Bytes()
}

type entry struct {
	zip.FileHeader
	data []byte
}

func file(name string, data []byte) entry {
	return entry{zip.FileHeader{Name: name, Method: zip.Deflate}, data}
}

func zipped(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		create := w.CreateHeader
		if e.Flags != 0 {
			e.CompressedSize64, e.UncompressedSize64, create = uint64(len(e.data)), uint64(len(e.data)), w.CreateRaw
		}
		f, err := create(&e.FileHeader)
		if err == nil {
			_, err = f.Write(e.data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// put writes files below a folder: a name that ends with a slash is a folder.
func put(t testing.TB, folder string, files map[string][]byte) {
	t.Helper()
	for name, data := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			path = filepath.Join(path, ".keep")
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFind(t *testing.T) {
	r := recording("r", "x")
	dir := t.TempDir()
	put(t, dir, map[string][]byte{
		"pile/cem.zip": nil, "pile/ali/lab/observations/run.jsonl.gz": r, "pile/Doe, Jane/": nil, "pile/dora.jsonl.gz": r,
		"pile/notes.txt": nil, "pile/.DS_Store": nil, "pile/.git/": nil, "pile/__MACOSX/": nil,
		"one/observations/run.jsonl.gz": r, "direct/run.jsonl.gz": r, "other/ali/": nil, "nothing/": nil,
	})
	t.Chdir(dir)
	for name, tt := range map[string]struct {
		paths []string
		want  []HandIn
	}{
		"a workspace":   {[]string{"one"}, []HandIn{{"one", "one"}}},
		"a recording":   {[]string{"one/observations/run.jsonl.gz"}, []HandIn{{"one", "one/observations/run.jsonl.gz"}}},
		"its folder":    {[]string{"one/observations"}, []HandIn{{"observations", "one/observations"}}},
		"a folder":      {[]string{"direct/"}, []HandIn{{"direct", "direct"}}},
		"an empty one":  {[]string{"nothing"}, []HandIn{{"nothing", "nothing"}}},
		"a pile":        {[]string{"pile"}, []HandIn{{"Doe, Jane", "pile/Doe, Jane"}, {"ali", "pile/ali"}, {"cem", "pile/cem.zip"}, {"dora", "pile/dora.jsonl.gz"}}},
		"two piles":     {[]string{"other", "one"}, []HandIn{{"other/ali", "other/ali"}, {"one", "one"}}},
		"twice":         {[]string{"one", "./one"}, []HandIn{{"one", "one"}, {"one", "one"}}},
		"the same name": {[]string{"pile/dora.jsonl.gz", "one/observations/run.jsonl.gz", "one"}, []HandIn{{"dora", "pile/dora.jsonl.gz"}, {"one/observations/run.jsonl.gz", "one/observations/run.jsonl.gz"}, {"one", "one"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Find(tt.paths)
			for i := range got {
				got[i].Name, got[i].Path = filepath.ToSlash(got[i].Name), filepath.ToSlash(got[i].Path)
			}
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
	var usage *args.UsageError
	if _, err := Find([]string{"gone"}); !errors.As(err, &usage) {
		t.Errorf("a path that is not there: %v", err)
	}
}

// Each case is one thing that somebody hands in, by accident or not.
func TestHandIns(t *testing.T) {
	good := recording("r", "x")
	const read = "no phase was run" // so much was found out of what is in it
	named := func(e entry, change func(h *zip.FileHeader)) entry {
		change(&e.FileHeader)
		return e
	}
	zips := map[string]struct {
		data []byte
		says string
	}{
		"in a zip":         {zipped(t, file("observations/run.jsonl.gz", good)), read},
		"below a folder":   {zipped(t, file("ali/", nil), file("ali/observations/run.jsonl.gz", good), file("ali/main.go", nil)), read},
		"made by Windows":  {zipped(t, file(`ali\observations\run.jsonl.gz`, good)), read},
		"made by a Mac":    {zipped(t, file("run.jsonl.gz", good), file("__MACOSX/._run.jsonl.gz", []byte("x"))), read},
		"stored":           {zipped(t, named(file("run.jsonl.gz", good), func(h *zip.FileHeader) { h.Method = zip.Store })), read},
		"the same twice":   {zipped(t, file("a/run.jsonl.gz", good), file("b/run.jsonl.gz", good)), read},
		"two":              {zipped(t, file("a/run.jsonl.gz", good), file("b/run.jsonl.gz", recording("s", "x"))), "two recordings that are not the same: a/run.jsonl.gz and b/run.jsonl.gz"},
		"many":             {zipped(t, slices.Repeat([]entry{file("run.jsonl.gz", good)}, 9)...), "9 recordings in it"},
		"none":             {zipped(t, file("a.txt", nil)), "no recording (*.jsonl.gz) in it: `lab verify` writes observations/run.jsonl.gz"},
		"empty":            {nil, "no zip: "},
		"no zip":           {bytes.Repeat([]byte("x"), 4096), "no zip: "},
		"cut off":          {zipped(t, file("run.jsonl.gz", good))[:100], "no zip: "},
		"traversal":        {zipped(t, file("../../run.jsonl.gz", good)), "../../run.jsonl.gz: a name that leads out of the zip"},
		"another's name":   {zipped(t, file("run.jsonl.gz", good), file("a/../../x", nil)), "a/../../x: a name that leads out of the zip"},
		"Windows' one":     {zipped(t, file(`..\run.jsonl.gz`, good)), "a name that leads out of the zip"},
		"absolute":         {zipped(t, file("/run.jsonl.gz", good)), "/run.jsonl.gz: a name that leads out of the zip"},
		"a drive":          {zipped(t, file(`C:\run.jsonl.gz`, good)), "a name that leads out of the zip"},
		"a link":           {zipped(t, named(file("run.jsonl.gz", []byte("/etc/passwd")), func(h *zip.FileHeader) { h.SetMode(fs.ModeSymlink | 0o777) })), "run.jsonl.gz: it is no file but a link or the like"},
		"nested":           {zipped(t, file("ali.zip", zipped(t, file("run.jsonl.gz", good)))), "no recording (*.jsonl.gz) in it; ali.zip is not looked into"},
		"encrypted":        {zipped(t, named(file("run.jsonl.gz", good), func(h *zip.FileHeader) { h.Flags = 1 })), "run.jsonl.gz is encrypted"},
		"strange method":   {zipped(t, named(file("run.jsonl.gz", good), func(h *zip.FileHeader) { h.Flags, h.Method = 8, 99 })), "run.jsonl.gz: zip: unsupported compression algorithm"},
		"wrong sum":        {zipped(t, named(file("run.jsonl.gz", good), func(h *zip.FileHeader) { h.Flags, h.Method = 8, zip.Store })), "run.jsonl.gz: zip: checksum error"},
		"not UTF-8":        {zipped(t, named(file("M\xfcller/run.jsonl.gz", good), func(h *zip.FileHeader) { h.NonUTF8 = true })), `M\xfcller/run.jsonl.gz: a name that is not UTF-8`},
		"a terminal's":     {zipped(t, file("\x1b[31m/../x", nil)), `\x1b[31m/../x: a name`},
		"a bomb":           {zipped(t, file("run.jsonl.gz", make([]byte, maxFile+1))), "run.jsonl.gz: larger than 64 MiB"},
		"a bomb inside":    {zipped(t, file("run.jsonl.gz", compress(make([]byte, 8<<20)))), "line 1: it is longer than"},
		"many files":       {zipped(t, slices.Repeat([]entry{{zip.FileHeader{Name: "a"}, nil}}, maxEntries+1)...), "it has more than 100000 files"},
		"many long names":  {zipped(t, slices.Repeat([]entry{{zip.FileHeader{Name: strings.Repeat("a", 1<<15)}, nil}}, 300)...), "its list of files is larger than 8 MiB"},
		"broken recording": {zipped(t, file("run.jsonl.gz", good[:40])), "damaged or cut off"},
	}
	dir := t.TempDir()
	var handIns []HandIn
	says := map[string]string{}
	add := func(name, path, want string) {
		says[name] = want
		handIns = append(handIns, HandIn{name, filepath.Join(dir, path)})
	}
	for name, tt := range zips {
		put(t, dir, map[string][]byte{name + ".zip": tt.data})
		add(name, name+".zip", tt.says)
	}
	put(t, dir, map[string][]byte{
		"a/run.jsonl.gz": good, "b/deep/er/observations/ali.jsonl.gz": good, "b/.git/other.jsonl.gz": nil, "c/submission.ZIP": zips["in a zip"].data,
		"d/a.zip": nil, "d/b.zip": nil, "e/run.jsonl.gz": good, "e/old/run.jsonl.gz": recording("s", "x"), "f/g/": nil, "x/run.jsonl.gz/": nil,
		"c2/submission.zip": zips["two"].data, "text.jsonl.gz": []byte("hello"),
	})
	add("folder", "a", read)
	add("deep folder", "b", read)
	add("folder with a zip", "c", read)
	add("folder with two zips", "d", "no recording")
	add("folder with two recordings", "e", "two recordings that are not the same: ")
	add("folder with nothing", "f", "no recording")
	add("a folder of that name", "x", "no recording")
	add("folder with a bad zip", "c2", "submission.zip: two recordings")
	add("file", "a/run.jsonl.gz", read)
	add("text", "text.jsonl.gz", "no recording: it is not compressed by gzip")
	add("gone", "gone", "no such file")
	if runtime.GOOS != "windows" {
		for link, to := range map[string]string{"out/run.jsonl.gz": "../a/run.jsonl.gz", "device/run.jsonl.gz": os.DevNull} {
			put(t, dir, map[string][]byte{filepath.Dir(link) + "/": nil})
			if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
				t.Fatal(err)
			}
			add(filepath.Dir(link), filepath.Dir(link), "run.jsonl.gz: it is no file but a link or the like")
		}
		add("a device", "../../../../../../../../../.."+os.DevNull, "it is neither a file nor a folder")
	}
	for _, r := range Grade(t.Context(), handIns, verify.Options{}) {
		if got := r.reason(); !strings.Contains(got, says[r.Name]) || r.Report.Verdict() != verify.Unknown {
			t.Errorf("%s: %s %s, want %s", r.Name, r.Report.Verdict(), got, says[r.Name])
		}
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := Grade(ctx, []HandIn{{"a", "a"}}, verify.Options{}); got[0].reason() != "a: context canceled" || got.Verdict() != verify.Unknown {
		t.Errorf("%+v", got)
	}
}

// A key of a megabyte stood in the report as often as the report named it.
func TestLongTexts(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string][]byte{"run.jsonl.gz": recording("r", strings.Repeat("ä", 1<<19))})
	long := strings.Repeat("ä", maxText)
	r := verify.Report{Reason: long, Causes: []string{long}, Phases: []verify.PhaseReport{{
		Reason: long, Checks: []verify.Check{{Name: long, Want: long, Got: long, Details: []string{long}}},
	}}}
	shorten(&r)
	raw, err := json.Marshal(r)
	if err != nil || len(raw) > 10*maxText {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
	graded := Grade(t.Context(), []HandIn{{"a", dir}}, verify.Options{Phases: []int{1}})
	if raw, err := json.Marshal(graded); err != nil || len(raw) > 10*maxText {
		t.Errorf("graded: %d bytes, %v", len(raw), err)
	}
}

// A copy is known by its run, and one with another run written on it by its records.
func TestSameRun(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string][]byte{
		"ali.jsonl.gz": recording("r1", "x"), "ben.jsonl.gz": recording("r2", "y"), "cem.jsonl.gz": recording("r1", "z"), "dora.jsonl.gz": recording("r3", "x"),
		"eve.jsonl.gz": recording("", "e"), "fay.jsonl.gz": recording("", "f"), "gil.jsonl.gz": nil, "hal.jsonl.gz": nil,
	})
	handIns, err := Find([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range Grade(t.Context(), handIns, verify.Options{}) {
		got[r.Name] = r.SameRunAs
	}
	want := map[string]string{"ali": "cem", "ben": "", "cem": "ali", "dora": "ali", "eve": "", "fay": "", "gil": "", "hal": ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// results are one of each kind.
func results() Results {
	phase := func(n int, v verify.Verdict, names ...string) verify.PhaseReport {
		p := verify.PhaseReport{Phase: n, Checks: []verify.Check{}, Verdict: v}
		for _, name := range names {
			p.Checks = append(p.Checks, verify.Check{Name: name, Verdict: v})
		}
		return p
	}
	return Results{
		{HandIn: HandIn{"ali", "h/ali.zip"}, Report: verify.Report{Phases: []verify.PhaseReport{phase(1, verify.Pass, "a"), phase(2, verify.Pass)}}, SameRunAs: "=cmd|x"},
		{HandIn: HandIn{"=cmd|x", "h/=cmd|x"}, Report: verify.Report{Phases: []verify.PhaseReport{
			phase(1, verify.Fail, "a", "b"), phase(2, verify.Fail, "b", "c", "d", "e"), phase(3, verify.Unknown, "u"),
		}}, SameRunAs: "ali"},
		{HandIn: HandIn{"z\x1b[31m", "h/z"}, Report: verify.Report{Phases: []verify.PhaseReport{phase(1, verify.NotRun), phase(5, verify.Unknown, "u")}}},
		{HandIn: HandIn{"-", "h/-"}, Report: verify.Report{Reason: "no recording: it is not compressed by gzip"}},
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	if err := results().Write(&b, false); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"hand-in    verdict  phase 1  phase 2  phase 3  phase 4  phase 5  phase 6",
		"ali        PASS     PASS     PASS     -        -        -        -        same run as =cmd|x",
		"=cmd|x     FAIL     FAIL     FAIL     UNKNOWN  -        -        -        a, b, c, 2 more; same run as ali",
		`z\x1b[31m  UNKNOWN  -        -        -        -        UNKNOWN  -        u`,
		"-          UNKNOWN  -        -        -        -        -        -        no recording: it is not compressed by gzip",
		"FAIL 1 of 4 hand-ins, UNKNOWN 2, PASS 1; 2 are the same run as another",
		"",
	}, "\n")
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
	b.Reset()
	if err := results().Write(&b, true); err != nil || !strings.Contains(b.String(), "\x1b[31mFAIL   \x1b[0m") || strings.Contains(b.String(), "z\x1b") {
		t.Errorf("in colour: %v\n%q", err, b.String())
	}
}

func TestCSV(t *testing.T) {
	var b bytes.Buffer
	if err := results().WriteCSV(&b); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(rows) != 5 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for i, want := range []string{"hand-in", "ali", "'=cmd|x", `z\x1b[31m`, "'-"} {
		if rows[i][0] != want {
			t.Errorf("row %d is of %q, want %q", i, rows[i][0], want)
		}
	}
	if got, want := strings.Join(rows[2][1:10], ";"), "FAIL;FAIL;FAIL;UNKNOWN;NOT RUN;NOT RUN;NOT RUN;a, b, c, d, e;ali"; got != want {
		t.Errorf("row %s, want %s", got, want)
	}
	for _, row := range rows {
		for _, c := range row {
			if c != "" && strings.ContainsRune("=+-@", rune(c[0])) {
				t.Errorf("a formula: %q", c)
			}
		}
	}
}

func TestJSON(t *testing.T) {
	raw, err := json.Marshal(results())
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		HandIns []struct {
			Name      string `json:"name"`
			SameRunAs string `json:"same_run_as"`
			Report    struct{ Verdict string }
		} `json:"hand_ins"`
	}
	if err := json.Unmarshal(raw, &got); err != nil || len(got.HandIns) != 4 || got.HandIns[1].Report.Verdict != "FAIL" || got.HandIns[0].SameRunAs != "=cmd|x" {
		t.Errorf("%v: %s", err, raw)
	}
	if !strings.HasSuffix(string(raw), `,"verdict":"FAIL"}`) {
		t.Errorf("the verdict is not last: %s", raw)
	}
}

func TestVerdict(t *testing.T) {
	all := results()
	for name, tt := range map[string]struct {
		results Results
		want    string
	}{
		"none":    {nil, "UNKNOWN 0 of 0 hand-ins"},
		"pass":    {Results{{Report: all[0].Report}, {Report: all[0].Report}}, "PASS 2 of 2 hand-ins"},
		"unknown": {Results{{Report: all[0].Report}, {Report: all[3].Report}}, "UNKNOWN 1 of 2 hand-ins, PASS 1"},
		"fail":    {Results{{Report: all[1].Report}, {Report: all[3].Report}}, "FAIL 1 of 2 hand-ins, UNKNOWN 1"},
	} {
		if got := tt.results.Summary(); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

func BenchmarkGrade(b *testing.B) {
	dir := b.TempDir()
	var handIns []HandIn
	for i := range 40 {
		name := fmt.Sprintf("%d.jsonl.gz", i)
		put(b, dir, map[string][]byte{name: recording(name, "x")})
		handIns = append(handIns, HandIn{name, filepath.Join(dir, name)})
	}
	for b.Loop() {
		Grade(b.Context(), handIns, verify.Options{})
	}
}
