// The peer gobwas/ws in its first style: a goroutine per connection, which reads through a buffer of its own and
// borrows the buffer of an answer from the library's pool. Usage: gobwas-goroutine PORT
package main

import (
	"bufio"
	"io"
	"log"
	"net"
	"os"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
)

// An answer up to this size leaves as one frame in one write.
const answerBytes = 16 << 10

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: gobwas-goroutine PORT")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go serve(conn)
	}
}

// serve answers one client until it disconnects, in any way.
func serve(conn net.Conn) {
	defer conn.Close()
	if _, err := ws.Upgrade(conn); err != nil {
		return
	}
	control := wsutil.ControlFrameHandler(conn, ws.StateServerSide)
	reader := &wsutil.Reader{
		Source:         bufio.NewReader(conn),
		State:          ws.StateServerSide,
		CheckUTF8:      true,
		OnIntermediate: control,
	}
	for {
		header, err := reader.NextFrame()
		if err != nil {
			return
		}
		if header.OpCode.IsControl() {
			err = control(header, reader)
		} else {
			err = echo(conn, header.OpCode, reader)
		}
		if err != nil {
			return
		}
	}
}

// echo returns the rest of the reader's message, all its fragments, as a message of the same kind.
func echo(conn net.Conn, kind ws.OpCode, message io.Reader) error {
	writer := wsutil.GetWriter(conn, ws.StateServerSide, kind, answerBytes)
	defer wsutil.PutWriter(writer)
	if _, err := io.Copy(writer, message); err != nil {
		return err
	}
	return writer.Flush()
}
