// Command spdy writes frames, encoded by the library that kubectl and the API server use, for the tests of
// crates/base/spdy.
//
//	go run . ../../../crates/base/spdy/tests/vectors
package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/moby/spdystream/spdy"
)

func main() {
	if len(os.Args) != 2 {
		fail(fmt.Errorf("usage: spdy FOLDER"))
	}
	var out bytes.Buffer
	framer, err := spdy.NewFramer(&out, &out)
	if err != nil {
		fail(err)
	}
	for _, frame := range frames() {
		if err := framer.WriteFrame(frame); err != nil {
			fail(err)
		}
	}
	if err := os.WriteFile(filepath.Join(os.Args[1], "client.bin"), out.Bytes(), 0o644); err != nil {
		fail(err)
	}
}

// frames are what clients send for an exec, a port-forward of fifty connections, and the rest of the protocol.
func frames() []spdy.Frame {
	frames := []spdy.Frame{}
	for i, kind := range []string{"error", "stdin", "stdout", "resize"} {
		frames = append(frames, syn(spdy.StreamId(2*i+1), 0, http.Header{"Streamtype": {kind}}))
	}
	frames = append(frames,
		&spdy.DataFrame{StreamId: 3, Data: []byte("echo hello\n")},
		&spdy.DataFrame{StreamId: 3, Flags: spdy.DataFlagFin, Data: []byte{}},
		&spdy.PingFrame{Id: 1},
	)
	for i := 0; i < 50; i++ {
		for j, kind := range []string{"error", "data"} {
			id := spdy.StreamId(101 + 4*i + 2*j)
			frames = append(frames, syn(id, spdy.ControlFlagFin, http.Header{
				"Streamtype": {kind},
				"Port":       {"8080"},
				"Requestid":  {fmt.Sprint(i)},
			}))
		}
	}
	return append(frames,
		&spdy.SynReplyFrame{StreamId: 2, Headers: http.Header{"A": {"1", "2"}}},
		&spdy.HeadersFrame{StreamId: 5, Headers: http.Header{"Trailer-Like": {"x"}}},
		&spdy.SettingsFrame{FlagIdValues: []spdy.SettingsFlagIdValue{{Id: spdy.SettingsInitialWindowSize, Value: 65536}}},
		&spdy.WindowUpdateFrame{StreamId: 3, DeltaWindowSize: 100},
		&spdy.RstStreamFrame{StreamId: 3, Status: spdy.Cancel},
		&spdy.GoAwayFrame{LastGoodStreamId: 7, Status: spdy.GoAwayOK},
	)
}

func syn(id spdy.StreamId, flags spdy.ControlFlags, headers http.Header) spdy.Frame {
	return &spdy.SynStreamFrame{
		CFHeader: spdy.ControlFrameHeader{Flags: flags},
		StreamId: id,
		Priority: 0,
		Headers:  headers,
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
