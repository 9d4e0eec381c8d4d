// Command telemetry writes the vectors that crates/base/telemetry is tested against: what Go's client makes of the same
// observations in native histograms, and what Prometheus reads in a body that the crate wrote.
//
//	go run . ../../../crates/base/telemetry/tests/vectors
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: telemetry FOLDER")
	}
	write("native.txt", native())
	body, err := os.ReadFile(filepath.Join(os.Args[1], "exposition.pb"))
	if err != nil {
		log.Fatal(err)
	}
	write("exposition.txt", read(body))
}

func write(name string, content *bytes.Buffer) {
	path := filepath.Join(os.Args[1], name)
	if err := os.WriteFile(path, content.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
	fmt.Println(path, content.Len(), "bytes")
}
