// The peer gobwas/ws in its second style: idle connections cost neither a goroutine nor a buffer. One goroutine waits
// in epoll for all of them and serves ready connections with buffers borrowed from pools. Usage: gobwas-epoll PORT
package main

import (
	"bufio"
	"io"
	"log"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
)

const (
	// An answer up to this size leaves as one frame in one write.
	answerBytes = 16 << 10
	// The rest of a message that has begun to arrive has to come within this time: the others wait for it.
	restOfMessage = time.Second
)

var inputs = sync.Pool{New: func() any { return bufio.NewReader(nil) }}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: gobwas-epoll PORT")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	poller, err := newPoller()
	if err != nil {
		log.Fatal(err)
	}
	go accept(listener, poller)
	for {
		ready, err := poller.wait()
		if err != nil {
			log.Fatal(err)
		}
		for _, client := range ready {
			if err := client.serve(); err != nil {
				poller.remove(client)
			}
		}
	}
}

// accept gives each newcomer a goroutine for its handshake only.
func accept(listener net.Listener, poller *poller) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			if _, err := ws.Upgrade(conn); err != nil {
				conn.Close()
				return
			}
			if err := poller.add(&client{conn: conn}); err != nil {
				log.Print(err)
				conn.Close()
			}
		}()
	}
}

type client struct {
	conn net.Conn
	fd   int
}

// serve answers received messages. It returns only between two messages, with its input buffer empty, so the buffer
// can go back to the pool.
func (c *client) serve() error {
	input := inputs.Get().(*bufio.Reader)
	input.Reset(c.conn)
	defer func() {
		input.Reset(nil)
		inputs.Put(input)
	}()
	control := wsutil.ControlFrameHandler(c.conn, ws.StateServerSide)
	reader := wsutil.Reader{Source: input, State: ws.StateServerSide, CheckUTF8: true, OnIntermediate: control}
	for {
		if err := c.conn.SetReadDeadline(time.Now().Add(restOfMessage)); err != nil {
			return err
		}
		header, err := reader.NextFrame()
		if err != nil {
			return err
		}
		if header.OpCode.IsControl() {
			err = control(header, &reader)
		} else {
			err = c.echo(header.OpCode, &reader)
		}
		if err != nil {
			return err
		}
		if input.Buffered() == 0 {
			return nil
		}
	}
}

// echo returns the rest of the reader's message, all its fragments, as a message of the same kind.
func (c *client) echo(kind ws.OpCode, message io.Reader) error {
	writer := wsutil.GetWriter(c.conn, ws.StateServerSide, kind, answerBytes)
	defer wsutil.PutWriter(writer)
	if _, err := io.Copy(writer, message); err != nil {
		return err
	}
	return writer.Flush()
}
