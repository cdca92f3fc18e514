package streams_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// operatorTypes are what programs are made of: an exported function or method that has, takes or gives one of them is an operator.
var operatorTypes = []string{
	"Builder", "Stream", "Table", "Split", "Grouped", "WindowedGroup", "Windows", "Serde", "ProcessorContext", "Context", "Punctuation",
	"KeyValueStore", "KeyValue", "NodeOption", "SourceOption", "WindowOption", "ProcessOption", "Name",
}

// notOperators have such types for another purpose: where a program begins and ends, the test driver's ends, and observers, which the
// original has in another form (processor.wrapper.class).
var notOperators = []string{"NewBuilder", "Build", "Input", "Output", "Entries", "WindowEntries", "Before", "After"}

// Each operator that the package exports is in a program that Kafka Streams has run too. An operator that is added without one fails here.
func TestConformanceCoversOperators(t *testing.T) {
	p := parsePackage(t)
	operators := p.operators()
	if len(operators) < 45 {
		t.Fatalf("only %d operators found: %v", len(operators), operators)
	}
	used := p.usedFrom("conformance", "operatorPrograms")
	for _, name := range slices.Sorted(maps.Keys(operators)) {
		if !used[operators[name]] {
			t.Errorf("%s is in no conformance program", name)
		}
	}
}

// The walk does miss what is missing: of the first programs alone, some operators are in none.
func TestConformanceCoverageFinds(t *testing.T) {
	p := parsePackage(t)
	used := p.usedFrom("conformance")
	operators := p.operators()
	for name, want := range map[string]bool{
		"Count": true, "(Stream).Filter": true, "(Table).Filter": true, "Map": true, "EventTime": false, "(Stream).Peek": false,
	} {
		if operators[name] == nil {
			t.Errorf("%s is not among the operators", name)
		}
		if used[operators[name]] != want {
			t.Errorf("%s in the first programs: %t, want %t", name, !want, want)
		}
	}
}

// sources is this package with its tests, type-checked.
type sources struct {
	pkg   *types.Package
	info  *types.Info
	decls map[types.Object]ast.Node // of functions, and of the package's variables
}

func parsePackage(t *testing.T) *sources {
	t.Helper()
	fset := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if f.Name.Name == "streams" { // and not streams_test
			files = append(files, f)
		}
	}
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	p := &sources{info: info, decls: map[types.Object]ast.Node{}}
	// What only tests import stays unknown, and so does what uses it.
	cfg := types.Config{Importer: exportData(t), Error: func(error) {}}
	p.pkg, _ = cfg.Check("streams", fset, files, p.info)
	for _, f := range files {
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				p.decls[p.info.Defs[d.Name]] = d
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if v, ok := s.(*ast.ValueSpec); ok {
						for _, name := range v.Names {
							p.decls[p.info.Defs[name]] = v
						}
					}
				}
			}
		}
	}
	return p
}

// operators finds them by name: Count, (Stream).Filter.
func (p *sources) operators() map[string]*types.Func {
	out := map[string]*types.Func{}
	for obj := range p.decls {
		f, ok := obj.(*types.Func)
		if !ok || !f.Exported() || slices.Contains(notOperators, f.Name()) || strings.HasPrefix(f.Name(), "Test") {
			continue
		}
		sig := f.Signature()
		if recv := sig.Recv(); recv != nil {
			if of := typeName(recv.Type()); token.IsExported(of) && slices.Contains(operatorTypes, of) {
				out["("+of+")."+f.Name()] = f
			}
			continue
		}
		for _, tuple := range []*types.Tuple{sig.Params(), sig.Results()} {
			for v := range tuple.Variables() {
				if slices.Contains(operatorTypes, typeName(v.Type())) {
					out[f.Name()] = f
				}
			}
		}
	}
	return out
}

func typeName(t types.Type) string {
	switch u := t.(type) {
	case *types.Pointer:
		return typeName(u.Elem())
	case *types.Slice:
		return typeName(u.Elem())
	case *types.Named:
		return u.Obj().Name()
	}
	return ""
}

// usedFrom are the functions that the tests reach from those variables: through other functions of the tests, and through all methods of
// the types that they make. What an operator calls inside the package does not count.
func (p *sources) usedFrom(variables ...string) map[*types.Func]bool {
	used, seen := map[*types.Func]bool{}, map[types.Object]bool{}
	var visit func(types.Object)
	visit = func(obj types.Object) {
		if obj == nil || seen[obj] || obj.Pkg() != p.pkg {
			return
		}
		seen[obj] = true
		if f, ok := obj.(*types.Func); ok {
			used[f.Origin()] = true
			if f.Exported() && f.Signature().Recv() == nil || p.isOperatorMethod(f) {
				return
			}
		}
		if name, ok := obj.(*types.TypeName); ok && !name.Exported() {
			if named, ok := name.Type().(*types.Named); ok {
				for m := range named.Methods() {
					visit(m)
				}
			}
		}
		if d := p.decls[obj]; d != nil {
			ast.Inspect(d, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					use := p.info.Uses[id]
					if f, ok := use.(*types.Func); ok {
						use = f.Origin()
					}
					visit(use)
				}
				return true
			})
		}
	}
	for _, name := range variables {
		visit(p.pkg.Scope().Lookup(name))
	}
	return used
}

func (p *sources) isOperatorMethod(f *types.Func) bool {
	recv := f.Signature().Recv()
	return recv != nil && slices.Contains(operatorTypes, typeName(recv.Type()))
}
