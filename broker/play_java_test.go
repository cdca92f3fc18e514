package broker

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// realJVM names the variable that runs these tests with Java, Maven and Kafka. Without it java is this test binary, which plays the programs of
// Kafka as far as their start, their end and their port go.
const (
	realJVM     = "LAB_TEST_JVM"
	javaEnv     = "LAB_BROKER_TEST_JAVA" // says that java is played, and where the data folder is found wrong
	javaFailing = "failing"
)

// playJava is `java` as far as a node of Kafka goes: its version, the formatting of a folder, and a process that listens until it is told to end.
func playJava(args []string) error {
	switch {
	case slices.Contains(args, "-version"):
		fmt.Fprintln(os.Stderr, `openjdk version "17.0.15" 2025-04-15`)
		return nil
	case slices.Contains(args, "kafka.tools.StorageTool"):
		return errors.Join(os.Mkdir(dataFolder, 0o755), os.WriteFile(filepath.Join(dataFolder, "meta.properties"), nil, 0o644))
	case os.Getenv(javaEnv) == javaFailing:
		return errors.New("no Kafka today")
	}
	settings, err := os.Open(settingsFile)
	if err != nil {
		return err
	}
	defer settings.Close()
	lines := bufio.NewScanner(settings)
	for lines.Scan() {
		if address, ok := strings.CutPrefix(lines.Text(), "advertised.listeners=PLAINTEXT://"); ok {
			ln, err := net.Listen("tcp", address)
			if err != nil {
				return err
			}
			for {
				conn, err := ln.Accept()
				if err != nil {
					return err
				}
				conn.Close()
			}
		}
	}
	return errors.Join(lines.Err(), errors.New("no listener in the settings"))
}
