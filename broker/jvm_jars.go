package broker

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

const (
	kafkaVersion = "4.3.1"
	// leastJava is what Kafka 4 needs, KIP-1013; leastMaven what the dependency plugin of the pom needs.
	leastJava  = "17"
	leastMaven = "3.6.3"
	// fetchEvery is how often a download says how far it is.
	fetchEvery = 3 * time.Second
)

// pom lists the jars. scripts/kafka.sh reads the same file.
//
//go:embed kafka/pom.xml
var pom []byte

// jars is the folder of Kafka's jars in the user's cache, which all workspaces share.
type jars struct{ dir string }

func cachedJars() (jars, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return jars{}, fmt.Errorf("a folder for Kafka's jars: %w", err)
	}
	return jars{filepath.Join(cache, "lab", "kafka-"+kafkaVersion)}, nil
}

// classpath names all jars to java.
func (j jars) classpath() string { return filepath.Join(j.dir, "*") }

// complete tells whether the folder holds the jars of this pom. The pom is in it, and a folder gets its name when all is there.
func (j jars) complete() bool {
	have, err := os.ReadFile(filepath.Join(j.dir, "pom.xml"))
	return err == nil && bytes.Equal(have, pom)
}

// fetch makes the folder complete. Commands of two workspaces fetch once: the second one waits, and finds it complete.
func (j jars) fetch(ctx context.Context, progress func(string)) (err error) {
	if j.complete() {
		return nil
	}
	mvn, err := findMaven(ctx)
	if err != nil {
		return err
	}
	lock, err := acquire(ctx, j.dir+".lock")
	if err != nil {
		return fmt.Errorf("waiting for another command that fetches Kafka's jars: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	if j.complete() {
		return nil
	}
	// What a killed command has left is not looked at.
	part := j.dir + ".part"
	if err := errors.Join(os.RemoveAll(part), os.MkdirAll(part, 0o755)); err != nil {
		return err
	}
	path := filepath.Join(part, "pom.xml")
	if err := os.WriteFile(path, pom, 0o644); err != nil {
		return err
	}
	progress(fmt.Sprintf("fetching Apache Kafka %s with Maven into %s", kafkaVersion, j.dir))
	started := time.Now()
	if err := runMaven(ctx, mvn, progress, "-B", "-f", path, "dependency:copy-dependencies", "-DoutputDirectory="+part); err != nil {
		return errors.Join(err, os.RemoveAll(part))
	}
	found, err := filepath.Glob(filepath.Join(part, "*.jar"))
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s fetched no jar into %s", mvn, part)
	}
	if err := errors.Join(err, os.RemoveAll(j.dir)); err != nil {
		return err
	}
	if err := os.Rename(part, j.dir); err != nil {
		return err
	}
	progress(fmt.Sprintf("fetched %d jars in %s", len(found), time.Since(started).Round(100*time.Millisecond)))
	return nil
}

// runMaven runs Maven and says now and then how many files it has downloaded. Its error holds the end of what it said.
func runMaven(ctx context.Context, mvn string, progress func(string), args ...string) error {
	cmd := exec.CommandContext(ctx, mvn, args...)
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	ended := make(chan error, 1)
	go func() { ended <- errors.Join(cmd.Run(), w.Close()) }() // waited for below
	var last []byte
	files, told := 0, time.Now()
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if last = append(append(last, lines.Bytes()...), '\n'); len(last) > logTail {
			last = last[len(last)-logTail:]
		}
		if strings.Contains(lines.Text(), "Downloaded from ") {
			files++
		}
		if files > 0 && time.Since(told) > fetchEvery {
			progress(fmt.Sprintf("fetching: %d files so far", files))
			told = time.Now()
		}
	}
	// A line too long for the scanner would leave Maven waiting for a reader.
	_, drained := io.Copy(io.Discard, r)
	if err := errors.Join(<-ended, lines.Err(), drained); err != nil {
		return fmt.Errorf("fetching Apache Kafka %s with Maven: %w; it needs a way to Maven Central, or a mirror in its settings.xml; "+
			"the end of what it said:\n%s", kafkaVersion, cmp.Or(ctx.Err(), err), bytes.TrimSpace(last))
	}
	return nil
}

// checkSystem refuses the system that Kafka's own documentation calls not supported.
func checkSystem() error {
	if runtime.GOOS == "windows" {
		return fmt.Errorf("--broker jvm is %w: Apache Kafka itself does not support Windows; use --broker embedded or docker", ErrUnavailable)
	}
	return nil
}

// findJava returns the java program: the one of JAVA_HOME, else the one on the path.
func findJava() (string, error) {
	name := "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		name = filepath.Join(home, "bin", "java")
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("--broker jvm is %w: it needs Java %s or later, and there is no %s; "+
			"install it, e.g. openjdk-%s-jre-headless, or use another --broker", ErrUnavailable, leastJava, name, leastJava)
	}
	return path, nil
}

// checkJava returns the java program if it is new enough for Kafka.
func checkJava(ctx context.Context) (string, error) {
	if err := checkSystem(); err != nil {
		return "", err
	}
	path, err := findJava()
	if err != nil {
		return "", err
	}
	return path, checkVersion(ctx, "Java", leastJava, path, "-version")
}

// findMaven returns the mvn program if it is new enough. It is only needed until the jars are there.
func findMaven(ctx context.Context) (string, error) {
	path, err := exec.LookPath("mvn")
	if err != nil {
		return "", fmt.Errorf("--broker jvm is %w: Maven (mvn) is needed once, to fetch Apache Kafka's jars, and is not installed; "+
			"install it, e.g. the package maven, or use another --broker", ErrUnavailable)
	}
	return path, checkVersion(ctx, "Maven", leastMaven, path, "-version")
}

// versionPattern finds the version in what `java -version` (openjdk version "17.0.15") and `mvn -version` (Apache Maven 3.8.7) say.
var versionPattern = regexp.MustCompile(`(?:version "|Apache Maven )([0-9]+(?:\.[0-9]+)*)`)

// checkVersion asks a program for its version.
func checkVersion(ctx context.Context, name, least, path string, arg string) error {
	out, err := exec.CommandContext(ctx, path, arg).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", path, arg, cmp.Or(ctx.Err(), err), bytes.TrimSpace(out))
	}
	m := versionPattern.FindSubmatch(out)
	if m == nil {
		return fmt.Errorf("%s %s does not tell its version: %s", path, arg, bytes.TrimSpace(out))
	}
	if have := string(m[1]); olderThan(have, least) {
		return fmt.Errorf("--broker jvm is %w: it needs %s %s or later, and %s is %s; install a newer one, or use another --broker",
			ErrUnavailable, name, least, path, have)
	}
	return nil
}

// olderThan compares versions number by number. Java 8 calls itself 1.8, which is older than any.
func olderThan(have, least string) bool {
	h, l := strings.Split(have, "."), strings.Split(least, ".")
	for i := range l {
		want, _ := strconv.Atoi(l[i])
		got := 0
		if i < len(h) {
			got, _ = strconv.Atoi(h[i])
		}
		if got != want {
			return got < want
		}
	}
	return false
}
