// A transactional process with franz-go, led step by step through its standard input; what it understands stands in
// tests/interop/transactor.py.
//
//	go run . transactor HOST:PORT TRANSACTIONAL-ID TIMEOUT-MS GROUP INPUT
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const stepDeadline = 60 * time.Second

type transactor struct {
	client  *kgo.Client // joins the group as soon as it is made
	options []kgo.Opt
	name    string
	group   string
	input   string
	fetched []*kgo.Record
	taken   map[int32]kgo.EpochOffset
}

func newTransactor(given []string) (*transactor, error) {
	timeoutMs, err := strconv.Atoi(given[2])
	if err != nil {
		return nil, err
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(given[0], ",")...),
		kgo.TransactionalID(given[1]),
		kgo.TransactionTimeout(time.Duration(timeoutMs) * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	if given[3] != "-" {
		options = append(options,
			kgo.ConsumerGroup(given[3]), kgo.InstanceID(given[1]), kgo.ConsumeTopics(given[4]), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
			kgo.RequireStableFetchOffsets(), kgo.FetchMaxWait(50*time.Millisecond))
	}
	return &transactor{
		options: options, name: given[1], group: given[3], input: given[4], taken: map[int32]kgo.EpochOffset{},
	}, nil
}

func (t *transactor) take(ctx context.Context, count int) (string, error) {
	found := []string{}
	for len(found) < count {
		if len(t.fetched) == 0 {
			fetches := t.client.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				return "", err
			}
			t.fetched = fetches.Records()
			continue
		}
		record := t.fetched[0]
		t.fetched = t.fetched[1:]
		t.taken[record.Partition] = kgo.EpochOffset{Epoch: record.LeaderEpoch, Offset: record.Offset + 1}
		found = append(found, fmt.Sprintf("%d:%d:%s", record.Partition, record.Offset, record.Value))
	}
	return strings.Join(found, " "), nil
}

func (t *transactor) send(ctx context.Context, topic, partition, value string) (string, error) {
	number, err := strconv.Atoi(partition)
	if err != nil {
		return "", err
	}
	record := &kgo.Record{Topic: topic, Partition: int32(number), Value: []byte(value)}
	err = t.client.ProduceSync(ctx, record).FirstErr()
	return strconv.FormatInt(record.Offset, 10), err
}

// The client itself sends them together with the end; here each is a step of its own.
func (t *transactor) offsets(ctx context.Context) error {
	id, epoch, err := t.client.ProducerID(ctx)
	if err != nil {
		return err
	}
	added := kmsg.NewPtrAddOffsetsToTxnRequest()
	added.TransactionalID, added.ProducerID, added.ProducerEpoch, added.Group = t.name, id, epoch, t.group
	told, err := added.RequestWith(ctx, t.client)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(told.ErrorCode); err != nil {
		return err
	}
	member, generation := t.client.GroupMetadata()
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.ProducerID, commit.ProducerEpoch, commit.Group = t.name, id, epoch, t.group
	commit.MemberID, commit.Generation, commit.InstanceID = member, generation, &t.name
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic = t.input
	for number, position := range t.taken {
		partition := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		partition.Partition, partition.Offset, partition.LeaderEpoch = number, position.Offset, position.Epoch
		topic.Partitions = append(topic.Partitions, partition)
	}
	commit.Topics = append(commit.Topics, topic)
	answer, err := commit.RequestWith(ctx, t.client)
	if err != nil {
		return err
	}
	for _, topic := range answer.Topics {
		for _, partition := range topic.Partitions {
			if err := kerr.ErrorForCode(partition.ErrorCode); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *transactor) run(words []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), stepDeadline)
	defer cancel()
	switch words[0] {
	case "init":
		var err error
		if t.client, err = kgo.NewClient(t.options...); err == nil {
			_, _, err = t.client.ProducerID(ctx)
		}
		return "", err
	case "take":
		count, err := strconv.Atoi(words[1])
		if err != nil {
			return "", err
		}
		return t.take(ctx, count)
	case "begin":
		return "", t.client.BeginTransaction()
	case "send":
		return t.send(ctx, words[1], words[2], words[3])
	case "offsets":
		return "", t.offsets(ctx)
	case "commit":
		return "", t.client.EndTransaction(ctx, kgo.TryCommit)
	case "abort":
		return "", t.client.EndTransaction(ctx, kgo.TryAbort)
	case "close":
		t.client.Close()
		return "", nil
	}
	return "", fmt.Errorf("no such step: %s", words[0])
}

func nameOf(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	return strings.ReplaceAll(err.Error(), " ", "_")
}

func transact(given []string) {
	t, err := newTransactor(given)
	if err != nil {
		panic(err)
	}
	asked := bufio.NewScanner(os.Stdin)
	for asked.Scan() {
		answer, err := t.run(strings.Split(asked.Text(), " "))
		if err != nil {
			fmt.Println("error", nameOf(err), strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println(strings.TrimSpace("ok " + answer))
		}
	}
}
