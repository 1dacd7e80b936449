// A client of the Flight server in Go, written from docs/flight-protocol.md.
//
//	go run . 127.0.0.1:8815 [TOPIC]
//
// It lists topics, creates one, writes two epochs once, reads them, follows the
// partition while a third is written, and handles an error. With TOKEN in its
// environment each call is authenticated.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const writer = "go-example"

var schema = arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}}, nil)

// Message is one message of the protocol, as a JSON object.
type Message map[string]any

func (m Message) bytes() []byte {
	m["v"] = 1
	text, err := json.Marshal(m)
	check(err)
	return text
}

// Failure is an error of the server: the JSON in the trailer of the call.
type Failure struct {
	Code     string `json:"code"`
	What     string `json:"what"`
	Remedy   string `json:"remedy"`
	Earliest *int64 `json:"earliest"`
	Latest   *int64 `json:"latest"`
	GRPC     string `json:"-"`
}

func (f *Failure) Error() string { return f.Code + ": " + f.What }

// failed returns the error of a call with the details of its trailer, if it has any.
func failed(err error, trailer metadata.MD) error {
	details := trailer.Get("grpc-status-details-bin")
	found := &Failure{GRPC: status.Code(err).String()}
	if len(details) == 1 && json.Unmarshal([]byte(details[0]), found) == nil {
		return found
	}
	return err
}

// Client calls one server.
type Client struct {
	flight.Client
	ctx      context.Context
	instance string
}

func connect(address string, ctx context.Context) *Client {
	if token := os.Getenv("TOKEN"); token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	client, err := flight.NewClientWithMiddleware(address, nil, nil, plain)
	check(err)
	return &Client{client, ctx, rand.Text()}
}

// Topics lists the topics that the client may read.
func (c *Client) Topics() []string {
	stream, err := c.ListFlights(c.ctx, &flight.Criteria{})
	check(err)
	names := []string{}
	for {
		info, err := stream.Recv()
		if err != nil {
			return names
		}
		names = append(names, info.FlightDescriptor.Path[0])
	}
}

// Act sends an action; it answers one message.
func (c *Client) Act(action string, request Message, answer any) error {
	stream, err := c.DoAction(c.ctx, &flight.Action{Type: action, Body: request.bytes()})
	check(err)
	result, err := stream.Recv()
	if err != nil {
		return failed(err, stream.Trailer())
	}
	check(json.Unmarshal(result.Body, answer))
	return nil
}

// Stage uploads rows for one partition; the sealed attempt is a part of a commit.
func (c *Client) Stage(topic string, ids []int64) (json.RawMessage, error) {
	stream, err := c.DoPut(c.ctx)
	check(err)
	rows := flight.NewRecordWriter(stream, ipc.WithSchema(schema))
	command := Message{"topic": topic, "attempt": rand.Text()}
	rows.SetFlightDescriptor(&flight.FlightDescriptor{
		Type: flight.DescriptorCMD, Cmd: command.bytes(),
	})
	batch := batchOf(ids)
	defer batch.Release()
	part := Message{"partition": 0, "acknowledge": false}
	if err := rows.WriteWithAppMetadata(batch, part.bytes()); err != nil {
		_, err = stream.Recv()
		return nil, failed(err, stream.Trailer())
	}
	check(rows.Close())
	check(stream.CloseSend())
	result, err := stream.Recv()
	if err != nil {
		return nil, failed(err, stream.Trailer())
	}
	return result.AppMetadata, nil
}

// Committed is the answer of a commit and of a claim.
type Committed struct {
	Placed []struct{ Partition, Start, End int64 }
	Held   *struct{ Epoch, Rows int64 }
}

// Write makes rows visible as an epoch: at once, and once.
func (c *Client) Write(topic string, epoch int64, ids []int64) (Committed, error) {
	var done Committed
	sealed, err := c.Stage(topic, ids)
	if err != nil {
		return done, err
	}
	var staged map[string]any
	check(json.Unmarshal(sealed, &staged))
	delete(staged, "v") // the version is one of whole messages
	err = c.Act("commit", Message{
		"topic": topic, "writer": writer, "instance": c.instance, "epoch": epoch,
		"staged": []any{staged}, "rows": len(ids),
	}, &done)
	return done, err
}

// Read calls a function with the offset and the id of each row of a range.
func (c *Client) Read(ticket Message, each func(offset, id int64)) error {
	stream, err := c.DoGet(c.ctx, &flight.Ticket{Ticket: ticket.bytes()})
	check(err)
	rows, err := flight.NewRecordReader(stream)
	if err != nil {
		return failed(err, stream.Trailer())
	}
	defer rows.Release()
	for rows.Next() {
		var delivery struct{ Start int64 }
		check(json.Unmarshal(rows.LatestAppMetadata(), &delivery))
		ids := rows.RecordBatch().Column(0).(*array.Int64)
		for row := range ids.Len() {
			each(delivery.Start+int64(row), ids.Value(row))
		}
	}
	if err := rows.Err(); err != nil {
		return failed(err, stream.Trailer())
	}
	return nil
}

func batchOf(ids []int64) arrow.RecordBatch {
	builder := array.NewInt64Builder(memory.DefaultAllocator)
	defer builder.Release()
	builder.AppendValues(ids, nil)
	column := builder.NewArray()
	defer column.Release()
	return array.NewRecordBatch(schema, []arrow.Array{column}, int64(len(ids)))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	topic := "go-example"
	if len(os.Args) > 2 {
		topic = os.Args[2]
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := connect(os.Args[1], ctx)
	defer client.Close()

	fmt.Println("topics before:", client.Topics())
	check(client.Act("create", Message{
		"topic":      topic,
		"schema":     flight.SerializeSchema(schema, memory.DefaultAllocator),
		"partitions": 1,
	}, &Message{}))
	fmt.Println("topics after:", client.Topics())

	// From here on commits of other instances of this writer are refused.
	claim := Message{"topic": topic, "writer": writer, "instance": client.instance}
	check(client.Act("claim", claim, &Committed{}))
	for epoch, ids := range [][]int64{{1, 2, 3}, {4, 5}, {4, 5}} {
		number := int64(min(epoch, 1)) // the last one repeats an epoch
		done, err := client.Write(topic, number, ids)
		check(err)
		if done.Held != nil {
			fmt.Printf("epoch %d: held, %d rows\n", done.Held.Epoch, done.Held.Rows)
		} else {
			fmt.Printf("epoch %d: placed at %d to %d\n", number, done.Placed[0].Start, done.Placed[0].End)
		}
	}

	show := func(offset, id int64) { fmt.Printf("offset %d: id %d\n", offset, id) }
	check(client.Read(Message{"topic": topic, "partition": 0}, show))

	// A read that follows waits for rows that are written later, up to its end.
	followed := make(chan error)
	go func() {
		ticket := Message{"topic": topic, "partition": 0, "start": 5, "end": 7, "follow": true}
		followed <- client.Read(ticket, func(offset, id int64) {
			fmt.Printf("followed to offset %d: id %d\n", offset, id)
		})
	}()
	_, err := client.Write(topic, 2, []int64{6, 7})
	check(err)
	check(<-followed)

	err = client.Read(Message{"topic": topic, "partition": 0, "start": 100}, show)
	failure, ok := err.(*Failure)
	if !ok {
		log.Fatal("no details: ", err)
	}
	fmt.Printf("%s (gRPC %s), available: %d to %d\n", failure.Code, failure.GRPC, *failure.Earliest, *failure.Latest)
	if failure.Code == "offset_out_of_range" {
		check(client.Read(Message{"topic": topic, "partition": 0, "start": *failure.Latest - 1}, show))
	}
}
