package streams_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestAPIMentionsNoInternalType: what an importer of streams or store can reach by exported names is never a type of an
// internal package, which it could not name. Methods, fields, type parameters and embedded types count.
func TestAPIMentionsNoInternalType(t *testing.T) {
	imp := exportData(t)
	for _, path := range []string{"github.com/windowed-order-counter/lab/streams", "github.com/windowed-order-counter/lab/store"} {
		pkg, err := imp.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		a := api{seen: map[types.Type]bool{}}
		for _, name := range pkg.Scope().Names() {
			if obj := pkg.Scope().Lookup(name); obj.Exported() {
				a.walk(obj.Type(), pkg.Name()+"."+name)
			}
		}
		for _, found := range a.found {
			t.Error(found)
		}
		if len(a.seen) < 50 {
			t.Errorf("%s: only %d types were looked at", path, len(a.seen))
		}
	}
}

// TestAPIWalkFinds: the walk does find an internal type, wherever it hides.
func TestAPIWalkFinds(t *testing.T) {
	internal := types.NewPackage("example.com/x/internal/y", "y")
	secret := types.NewNamed(types.NewTypeName(token.NoPos, internal, "Secret", nil), types.NewStruct(nil, nil), nil)
	own := types.NewPackage("example.com/x", "x")
	field := func(name string, typ types.Type) *types.Var {
		return types.NewField(token.NoPos, own, name, typ, false)
	}
	for name, typ := range map[string]types.Type{
		"pointer":   types.NewPointer(secret),
		"map":       types.NewMap(types.Typ[types.String], types.NewSlice(secret)),
		"field":     types.NewStruct([]*types.Var{field("Open", types.NewChan(types.SendRecv, secret))}, nil),
		"parameter": types.NewSignatureType(nil, nil, nil, types.NewTuple(types.NewParam(token.NoPos, own, "", secret)), nil, false),
		"result":    types.NewSignatureType(nil, nil, nil, nil, types.NewTuple(types.NewParam(token.NoPos, own, "", secret)), false),
		"method": types.NewInterfaceType([]*types.Func{types.NewFunc(token.NoPos, own, "Get", types.NewSignatureType(
			nil, nil, nil, nil, types.NewTuple(types.NewParam(token.NoPos, own, "", secret)), false))}, nil),
	} {
		a := api{seen: map[types.Type]bool{}}
		if a.walk(typ, name); len(a.found) != 1 {
			t.Errorf("%s: found %v", name, a.found)
		}
	}
	a := api{seen: map[types.Type]bool{}}
	if a.walk(types.NewStruct([]*types.Var{field("closed", secret)}, nil), "unexported"); len(a.found) != 0 {
		t.Errorf("an unexported field was taken for a part of the API: %v", a.found)
	}
}

// api collects the internal types that are reachable from exported names.
type api struct {
	seen  map[types.Type]bool
	found []string
}

func (a *api) walk(t types.Type, where string) {
	if t == nil || a.seen[t] {
		return
	}
	a.seen[t] = true
	switch t := t.(type) {
	case *types.Alias:
		a.named(t.Obj(), where)
		a.walk(types.Unalias(t), where)
	case *types.Named:
		if a.named(t.Obj(), where) {
			return
		}
		for arg := range t.TypeArgs().Types() {
			a.walk(arg, where)
		}
		for param := range t.TypeParams().TypeParams() {
			a.walk(param.Constraint(), where)
		}
		if pkg := t.Obj().Pkg(); pkg == nil || !strings.HasPrefix(pkg.Path(), "github.com/windowed-order-counter/") {
			return // what another module exports is its own affair
		}
		for m := range t.Methods() {
			if m.Exported() {
				a.walk(m.Type(), where+"."+m.Name())
			}
		}
		a.walk(t.Underlying(), where)
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() || f.Embedded() {
				a.walk(f.Type(), where+"."+f.Name())
			}
		}
	case *types.Interface:
		for m := range t.Methods() {
			if m.Exported() {
				a.walk(m.Type(), where+"."+m.Name())
			}
		}
	case *types.Signature:
		for param := range t.TypeParams().TypeParams() {
			a.walk(param.Constraint(), where)
		}
		for v := range t.Params().Variables() {
			a.walk(v.Type(), where)
		}
		for v := range t.Results().Variables() {
			a.walk(v.Type(), where)
		}
	case *types.Pointer:
		a.walk(t.Elem(), where)
	case *types.Slice:
		a.walk(t.Elem(), where)
	case *types.Array:
		a.walk(t.Elem(), where)
	case *types.Chan:
		a.walk(t.Elem(), where)
	case *types.Map:
		a.walk(t.Key(), where)
		a.walk(t.Elem(), where)
	}
}

// named notes a type of an internal package.
func (a *api) named(obj *types.TypeName, where string) bool {
	pkg := obj.Pkg()
	if pkg == nil || !strings.Contains("/"+pkg.Path()+"/", "/internal/") {
		return false
	}
	a.found = append(a.found, fmt.Sprintf("%s mentions %s.%s", where, pkg.Path(), obj.Name()))
	return true
}

// exportData imports packages from what the compiler wrote for them.
func exportData(t *testing.T) types.Importer {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export", ".", "../store").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	files := map[string]string{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct{ ImportPath, Export string }
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		files[p.ImportPath] = p.Export
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
}
