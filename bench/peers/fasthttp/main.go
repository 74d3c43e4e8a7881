// The peer of the HTTP scenarios: fasthttp with GOMAXPROCS=1 (set by bench/run), one fixed body for every
// request. Usage: fasthttp-peer ADDRESS FILE; the file is read once at the start.
package main

import (
	"log"
	"os"

	"github.com/valyala/fasthttp"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: fasthttp-peer ADDRESS FILE")
	}
	body, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	server := fasthttp.Server{
		Handler: func(ctx *fasthttp.RequestCtx) {
			ctx.SetContentType("text/plain; charset=utf-8")
			ctx.SetBody(body)
		},
	}
	log.Fatal(server.ListenAndServe(os.Args[1]))
}
