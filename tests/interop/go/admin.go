// What franz-go and its admin client can do on one node, step by step; each line of the output is what one step
// gave, as JSON.
//
//	go run . HOST:PORT
//	go run . transactor ... (transactor.go)
//	go run . members (members.go)
//	go run . cluster ... (cluster.go)
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type table map[string]any

var ctx, _ = context.WithTimeout(context.Background(), 60*time.Second)

func told(err error) any {
	var known *kerr.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known.Message
	}
	return err.Error()
}

func step(name string, work func() (any, error)) {
	result, err := work()
	line, _ := json.Marshal(table{"step": name, "result": result, "error": told(err)})
	fmt.Println(string(line))
}

func text(of *string) string {
	if of == nil {
		return "<nil>"
	}
	return *of
}

func pointer(of string) *string { return &of }

func main() {
	switch os.Args[1] {
	case "transactor":
		transact(os.Args[2:])
		return
	case "members":
		runMembers()
		return
	case "cluster":
		administerCluster(os.Args[2:])
		return
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)

	step("create", func() (any, error) {
		made, err := admin.CreateTopics(ctx, 2, 1, map[string]*string{"retention.ms": pointer("60000")}, "go-a", "go-b")
		return errorsOf(made), err
	})
	step("create again", func() (any, error) {
		_, err := admin.CreateTopic(ctx, 1, 1, nil, "go-a")
		return nil, err
	})
	step("only validate", func() (any, error) {
		_, err := admin.ValidateCreateTopics(ctx, 1, 1, nil, "go-not-made")
		return nil, err
	})
	step("list", func() (any, error) {
		topics, err := admin.ListTopics(ctx, "go-a", "go-b")
		found := table{}
		for _, each := range topics.Sorted() {
			for _, partition := range each.Partitions.Sorted() {
				at := fmt.Sprintf("%s-%d", each.Topic, partition.Partition)
				found[at] = []any{partition.Leader, partition.LeaderEpoch, partition.Replicas, partition.ISR}
			}
		}
		return found, err
	})
	step("more partitions", func() (any, error) {
		made, err := admin.UpdatePartitions(ctx, 4, "go-a")
		return perTopic(made.Error()), err
	})
	step("fewer partitions", func() (any, error) {
		made, err := admin.UpdatePartitions(ctx, 1, "go-a")
		return perTopic(made.Error()), err
	})
	step("alter configs", func() (any, error) {
		changes := []kadm.AlterConfig{
			{Op: kadm.SetConfig, Name: "cleanup.policy", Value: pointer("compact")},
			{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: pointer("delete")},
			{Op: kadm.DeleteConfig, Name: "retention.ms"},
		}
		altered, err := admin.AlterTopicConfigs(ctx, changes[:1], "go-b")
		if err == nil && altered[0].Err == nil {
			altered, err = admin.AlterTopicConfigs(ctx, changes[1:], "go-b")
		}
		return told(altered[0].Err), err
	})
	step("configs", func() (any, error) {
		for { // Apache Kafka's brokers hear of a change a little later
			described, err := admin.DescribeTopicConfigs(ctx, "go-b")
			if err != nil {
				return nil, err
			}
			found, isHeardOf := table{}, false
			for _, each := range described[0].Configs {
				found[each.Key] = []any{text(each.Value), each.Source.String(), each.Sensitive}
				isHeardOf = isHeardOf || (each.Key == "cleanup.policy" && each.Value != nil && *each.Value == "compact,delete")
			}
			if isHeardOf {
				return found, nil
			}
		}
	})
	step("configs of none", func() (any, error) {
		described, err := admin.DescribeTopicConfigs(ctx, "go-none")
		return told(described[0].Err), err
	})
	step("send", func() (any, error) {
		var sent []*kgo.Record
		for number := range 5 {
			sent = append(sent, &kgo.Record{
				Topic: "go-a", Partition: 0, Key: fmt.Appendf(nil, "k%d", number), Value: []byte("value"),
				Timestamp: time.UnixMilli(1700000000000 + int64(number)),
			})
		}
		return nil, client.ProduceSync(ctx, sent...).FirstErr()
	})
	step("offsets", func() (any, error) {
		ends, err := admin.ListEndOffsets(ctx, "go-a")
		return offsets(ends), err
	})
	step("offsets by time", func() (any, error) {
		found, err := admin.ListOffsetsAfterMilli(ctx, 1700000000002, "go-a")
		return offsets(found), err
	})
	step("offset of the largest time", func() (any, error) {
		found, err := admin.ListMaxTimestampOffsets(ctx, "go-a")
		return offsets(found), err
	})
	step("delete records", func() (any, error) {
		upTo := kadm.Offsets{}
		upTo.AddOffset("go-a", 0, 3, -1)
		deleted, err := admin.DeleteRecords(ctx, upTo)
		each, _ := deleted.Lookup("go-a", 0)
		return []any{each.LowWatermark, told(each.Err)}, err
	})
	step("start offsets", func() (any, error) {
		starts, err := admin.ListStartOffsets(ctx, "go-a")
		return offsets(starts), err
	})
	step("log directories", func() (any, error) {
		set := kadm.TopicsSet{}
		set.Add("go-a", 0, 1, 2, 3)
		described, err := admin.DescribeAllLogDirs(ctx, set)
		found := table{}
		described.Each(func(each kadm.DescribedLogDir) {
			each.Topics.Each(func(partition kadm.DescribedLogDirPartition) {
				at := fmt.Sprintf("%s-%d", partition.Topic, partition.Partition)
				found[at] = []any{partition.Size, partition.OffsetLag, partition.IsFuture, told(each.Err)}
			})
		})
		return found, err
	})
	step("producers", func() (any, error) {
		set := kadm.TopicsSet{}
		set.Add("go-a", 0)
		described, err := admin.DescribeProducers(ctx, set)
		var found []any
		for _, each := range described.SortedProducers() {
			found = append(found, []any{each.ProducerEpoch, each.LastSequence, each.CoordinatorEpoch, each.CurrentTxnStartOffset})
		}
		return found, err
	})
	step("elect leaders", func() (any, error) {
		set := kadm.TopicsSet{}
		set.Add("go-a", 0, 9)
		elected, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, set)
		found := table{}
		for _, partitions := range elected {
			for number, each := range partitions {
				found[fmt.Sprint(number)] = told(each.Err)
			}
		}
		return found, err
	})
	step("reassign", func() (any, error) {
		var request kadm.AlterPartitionAssignmentsReq
		request.Assign("go-a", 0, []int32{1})
		request.Assign("go-a", 1, []int32{9})
		request.CancelAssign("go-a", 2)
		altered, err := admin.AlterPartitionAssignments(ctx, request)
		found := table{}
		for _, each := range altered.Sorted() {
			found[fmt.Sprint(each.Partition)] = told(each.Err)
		}
		return found, err
	})
	step("reassignments", func() (any, error) {
		listed, err := admin.ListPartitionReassignments(ctx, nil)
		return len(listed.Sorted()), err
	})
	step("quotas", func() (any, error) {
		user := pointer("go-user")
		entity := kadm.ClientQuotaEntity{{Type: "user", Name: user}}
		altered, err := admin.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{
			{Entity: entity, Ops: []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: 1024}}},
		})
		if err != nil || altered[0].Err != nil {
			return told(altered[0].Err), err
		}
		wanted := []kadm.DescribeClientQuotaComponent{{Type: "user", MatchName: user, MatchType: kadm.QuotasMatchType(0)}}
		described, err := admin.DescribeClientQuotas(ctx, true, wanted)
		for err == nil && len(described) == 0 { // Apache Kafka's brokers hear of it a little later
			described, err = admin.DescribeClientQuotas(ctx, true, wanted)
		}
		var found []any
		for _, each := range described {
			for _, value := range each.Values {
				found = append(found, []any{each.Entity.String(), value.Key, value.Value})
			}
		}
		return found, err
	})
	step("brokers", func() (any, error) {
		brokers, err := admin.ListBrokers(ctx)
		return brokers.NodeIDs(), err
	})
	step("broker configs", func() (any, error) {
		described, err := admin.DescribeBrokerConfigs(ctx, 1)
		found := table{}
		for _, each := range described[0].Configs {
			switch each.Key {
			case "num.partitions", "message.max.bytes", "log.cleaner.backoff.ms", "ssl.keystore.password":
				found[each.Key] = []any{text(each.Value), each.Source.String(), each.Sensitive, each.Synonyms}
			}
		}
		return found, err
	})
	step("delete", func() (any, error) {
		deleted, err := admin.DeleteTopics(ctx, "go-a", "go-b", "go-none")
		found := table{}
		for _, each := range deleted.Sorted() {
			found[each.Topic] = told(each.Err)
		}
		return found, err
	})
}

func errorsOf(made kadm.CreateTopicResponses) any {
	found := table{}
	for _, each := range made.Sorted() {
		found[each.Topic] = []any{told(each.Err), each.NumPartitions, each.ReplicationFactor, len(each.Configs) > 10}
	}
	return found
}

func perTopic(err error) any { return told(err) }

func offsets(listed kadm.ListedOffsets) any {
	var found []string
	listed.Each(func(each kadm.ListedOffset) {
		found = append(found, fmt.Sprintf("%d: %d %d %v", each.Partition, each.Offset, each.Timestamp, told(each.Err)))
	})
	sort.Strings(found)
	return found
}
