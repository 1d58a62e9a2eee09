// Members of groups with franz-go, told what to do by lines of JSON, and telling; what it understands and what it
// says stands in tests/interop/python_members.py.
//
//	go run . members
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
	_ "unsafe" // for the name of the clock

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The clock that all processes of a machine share, which package time keeps to itself.
//
//go:linkname nanotime runtime.nanotime
func nanotime() int64

const commitEvery = 200 * time.Millisecond

var balancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"roundrobin":         kgo.RoundRobinBalancer(),
	"sticky":             kgo.StickyBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

type place struct {
	topic     string
	partition int32
}

func (p place) MarshalJSON() ([]byte, error) { return json.Marshal([]any{p.topic, p.partition}) }

type telling struct {
	At         int64   `json:"at"`
	Member     string  `json:"member"`
	Did        string  `json:"did"`
	Partitions []place `json:"partitions,omitempty"`
	Offsets    []int64 `json:"offsets,omitempty"`
	Why        string  `json:"why,omitempty"`
	Since      int64   `json:"since,omitempty"`
}

type wanted struct {
	Do          string   `json:"do"`
	Member      string   `json:"member"`
	Bootstrap   string   `json:"bootstrap"`
	Group       string   `json:"group"`
	Topics      []string `json:"topics"`
	Assignors   []string `json:"assignors"`
	Instance    *string  `json:"instance"`
	SessionMs   int      `json:"session_ms"`
	HeartbeatMs int      `json:"heartbeat_ms"`
}

var out sync.Mutex

type member struct {
	name      string
	ctx       context.Context
	leave     context.CancelFunc
	client    *kgo.Client
	lock      sync.Mutex // of what follows: callbacks run beside the polls
	positions map[place]kgo.EpochOffset
}

func (m *member) tell(did string, partitions []place, offsets []int64, why string) {
	m.tellSince(0, did, partitions, offsets, why)
}

func (m *member) tellSince(since int64, did string, partitions []place, offsets []int64, why string) {
	line, _ := json.Marshal(telling{nanotime(), m.name, did, partitions, offsets, why, since})
	out.Lock()
	defer out.Unlock()
	fmt.Println(string(line))
}

func join(how wanted) (*member, error) {
	m := &member{name: how.Member, positions: map[place]kgo.EpochOffset{}}
	m.ctx, m.leave = context.WithCancel(context.Background())
	chosen := []kgo.GroupBalancer{}
	for _, name := range how.Assignors {
		chosen = append(chosen, balancers[name])
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(how.Bootstrap, ",")...),
		kgo.ClientID(how.Member),
		kgo.ConsumerGroup(how.Group),
		kgo.ConsumeTopics(how.Topics...),
		kgo.Balancers(chosen...),
		kgo.SessionTimeout(time.Duration(how.SessionMs) * time.Millisecond),
		kgo.HeartbeatInterval(time.Duration(how.HeartbeatMs) * time.Millisecond),
		kgo.FetchMaxWait(50 * time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, given map[string][]int32) {
			m.tell("assigned", places(given), nil, "")
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, client *kgo.Client, taken map[string][]int32) {
			m.commit(client, places(taken))
			m.tell("revoked", places(taken), nil, "")
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, taken map[string][]int32) {
			m.take(places(taken))
			m.tell("lost", places(taken), nil, "")
		}),
	}
	if how.Instance != nil {
		options = append(options, kgo.InstanceID(*how.Instance))
	}
	client, err := kgo.NewClient(options...)
	m.client = client
	return m, err
}

func (m *member) live() {
	commitAt := time.Time{}
	for m.ctx.Err() == nil || len(m.positions) > 0 {
		polling, done := context.WithTimeout(context.Background(), 100*time.Millisecond)
		fetched := m.client.PollRecords(polling, 500)
		done()
		for _, failed := range fetched.Errors() {
			if errors.Is(failed.Err, kerr.FencedInstanceID) {
				m.tell("failed", nil, nil, failed.Err.Error())
				m.client.CloseAllowingRebalance()
				return
			}
		}
		fetched.EachPartition(m.read)
		if m.ctx.Err() != nil || time.Now().After(commitAt) {
			m.commit(m.client, nil)
			commitAt = time.Now().Add(commitEvery)
		}
		m.client.AllowRebalance()
	}
	m.client.CloseAllowingRebalance()
	m.tell("left", nil, nil, "")
}

func (m *member) read(polled kgo.FetchTopicPartition) {
	if len(polled.Records) == 0 {
		return
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	at := place{polled.Topic, polled.Partition}
	start := 0
	for i := 1; i <= len(polled.Records); i++ {
		last := polled.Records[i-1]
		if i == len(polled.Records) || polled.Records[i].Offset != last.Offset+1 {
			m.tell("read", []place{at}, []int64{polled.Records[start].Offset, last.Offset}, "")
			m.positions[at] = kgo.EpochOffset{Epoch: last.LeaderEpoch, Offset: last.Offset + 1}
			start = i
		}
	}
}

// take gives what is not committed yet, of these partitions or (nil) of all.
func (m *member) take(chosen []place) map[string]map[int32]kgo.EpochOffset {
	m.lock.Lock()
	defer m.lock.Unlock()
	if chosen == nil {
		for at := range m.positions {
			chosen = append(chosen, at)
		}
	}
	found := map[string]map[int32]kgo.EpochOffset{}
	for _, at := range chosen {
		if position, is := m.positions[at]; is {
			if found[at.topic] == nil {
				found[at.topic] = map[int32]kgo.EpochOffset{}
			}
			found[at.topic][at.partition] = position
			delete(m.positions, at)
		}
	}
	return found
}

func (m *member) keep(offsets map[string]map[int32]kgo.EpochOffset) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for topic, all := range offsets {
		for partition, position := range all {
			m.positions[place{topic, partition}] = position
		}
	}
}

func (m *member) commit(client *kgo.Client, chosen []place) {
	offsets := m.take(chosen)
	if len(offsets) == 0 {
		return
	}
	var failed error
	since := nanotime()
	client.CommitOffsetsSync(context.Background(), offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
		failed = err
		if answer != nil {
			for _, topic := range answer.Topics {
				for _, partition := range topic.Partitions {
					if failed == nil {
						failed = kerr.ErrorForCode(partition.ErrorCode)
					}
				}
			}
		}
	})
	if failed != nil {
		m.tell("refused", nil, nil, failed.Error())
		if chosen == nil { // no rebalance since: they are still its own
			m.keep(offsets)
		}
		return
	}
	partitions, numbers := []place{}, []int64{}
	for topic, all := range offsets {
		for partition, position := range all {
			partitions = append(partitions, place{topic, partition})
			numbers = append(numbers, position.Offset)
		}
	}
	m.tellSince(since, "committed", partitions, numbers, "")
}

func places(of map[string][]int32) []place {
	all := []place{}
	for topic, partitions := range of {
		for _, partition := range partitions {
			all = append(all, place{topic, partition})
		}
	}
	return all
}

func runMembers() {
	members := map[string]*member{}
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		var command wanted
		if err := json.Unmarshal(commands.Bytes(), &command); err != nil {
			panic(err)
		}
		if command.Do == "join" {
			joined, err := join(command)
			if err != nil {
				joined.tell("failed", nil, nil, err.Error())
				continue
			}
			members[command.Member] = joined
			go joined.live()
		} else {
			members[command.Member].leave()
		}
	}
}
