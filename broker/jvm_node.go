package broker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// The files in a node's folder. Kafka is told of them by these names, from within the folder.
const (
	settingsFile = "server.properties"
	loggingFile  = "log4j2.properties"
	dataFolder   = "data"
)

// heap is enough for the lab's load, and little enough for three nodes beside everything else.
const heap = "-Xmx512m"

// logging sends all that Kafka logs to the output of its process.
const logging = `status = error
rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_OUT
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
`

// ServeNodeConfig says which node ServeNode is.
type ServeNodeConfig struct {
	// Dir is the workspace.
	Dir string
	// Node is the node's number, from 1.
	Node int
}

// prepareNode writes what a node is started with, and formats its data folder if that is new.
func prepareNode(ctx context.Context, java string, jars jars, folder string, l jvmLayout, n jvmNode) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	err := errors.Join(
		os.WriteFile(filepath.Join(folder, settingsFile), properties(nodeSettings(l, n)), 0o644),
		os.WriteFile(filepath.Join(folder, loggingFile), []byte(logging), 0o644),
	)
	if err != nil {
		return err
	}
	// Formatting writes this file last.
	if _, err := os.Stat(filepath.Join(folder, dataFolder, "meta.properties")); err == nil {
		return nil
	}
	if err := os.RemoveAll(filepath.Join(folder, dataFolder)); err != nil { // of a command that was killed
		return err
	}
	format := javaArgs(jars, "kafka.tools.StorageTool", "format", "--cluster-id", l.ClusterID, "--config", settingsFile)
	cmd := exec.CommandContext(ctx, java, format...)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("formatting the data folder of node %d: %w: %s", n.Number, cmp.Or(ctx.Err(), err), bytes.TrimSpace(out))
	}
	return nil
}

// javaArgs are the arguments of java for one of Kafka's programs, from within a node's folder.
func javaArgs(jars jars, class string, args ...string) []string {
	return append([]string{heap, "-cp", jars.classpath(), "-Dlog4j2.configurationFile=" + loggingFile, class}, args...)
}

// loopback is the address of a port on the loopback interface.
func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
