// Command promtext writes the vectors that the Rust crate is tested against: what Go's strconv,
// Prometheus' two text parsers and client_golang make of the same input.
//
//	go run . ../../../crates/base/promtext/tests/vectors
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
		log.Fatal("usage: promtext FOLDER")
	}
	write("floats.txt", floats())
	write("lines.txt", lines())
	write("families.input.txt", familiesInput())
	write("families.txt", families())
}

func write(name string, content *bytes.Buffer) {
	path := filepath.Join(os.Args[1], name)
	if err := os.WriteFile(path, content.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
	fmt.Println(path, content.Len(), "bytes")
}
