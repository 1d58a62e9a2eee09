// What franz-go and its admin client can do with several nodes, step by step: `go run . cluster HOST:PORT GONE`,
// where GONE is a fenced broker. Each line of the output is what one step gave, as JSON; nodes that are chosen by
// chance are not named.
package main

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type cluster struct {
	client *kgo.Client
	admin  *kadm.Client
}

type quorum struct {
	kmsg.DescribeQuorumResponseTopicPartition
	nodes []kmsg.DescribeQuorumResponseNode
}

const (
	metadata = "__cluster_metadata"
	threads  = "log.cleaner.threads"
	largest  = "message.max.bytes"
	pause    = 20 * time.Millisecond
	width    = 6
)

// what brokers register, or serve, that is not for administrators, or only in Apache Kafka
var compared = []int16{0, 1, 2, 3, 19, 20, 21, 32, 37, 43, 44, 45, 46, 48, 49, 55, 57, 60, 64, 74, 75, 80, 81}
var otherFeatures = map[string]bool{"group.version": true, "share.version": true, "streams.version": true}

func administerCluster(arguments []string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(arguments[0]))
	if err != nil {
		panic(err)
	}
	defer client.Close()
	patient, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	ctx = patient
	var gone int32
	fmt.Sscan(arguments[1], &gone)
	of := cluster{client, kadm.NewClient(client)}
	of.describe(gone)
	of.features()
	of.topics()
	of.configs()
	of.voters()
	step("unregister", func() (any, error) { return of.unregister(gone) })
	step("is gone", func() (any, error) {
		_, err := of.describedWith(gone, false)
		return true, err
	})
	step("unregister again", func() (any, error) { return of.unregister(gone) })
}

// until waits for what brokers hear of a little later.
func (of cluster) until(holds func() bool) error {
	for !holds() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
	return nil
}

func (of cluster) described() (*kmsg.DescribeClusterResponse, error) {
	request := kmsg.NewPtrDescribeClusterRequest()
	request.IncludeFencedBrokers = true
	return request.RequestWith(ctx, of.client)
}

// describedWith asks until a broker tells that there is such a broker, or none.
func (of cluster) describedWith(broker int32, isThere bool) (*kmsg.DescribeClusterResponse, error) {
	var described *kmsg.DescribeClusterResponse
	err := of.until(func() bool {
		var err error
		described, err = of.described()
		isTold := err == nil && slices.ContainsFunc(described.Brokers, func(each kmsg.DescribeClusterResponseBroker) bool {
			return each.NodeID == broker
		})
		return err == nil && isTold == isThere
	})
	return described, err
}

func (of cluster) describe(gone int32) {
	step("cluster", func() (any, error) {
		described, err := of.describedWith(gone, true)
		if err != nil {
			return nil, err
		}
		fenced, controls := table{}, false
		for _, each := range described.Brokers {
			fenced[fmt.Sprint(each.NodeID)] = each.IsFenced
			controls = controls || (each.NodeID == described.ControllerID && !each.IsFenced)
		}
		return []any{fenced, controls, len(described.ClusterID)}, kerr.ErrorForCode(described.ErrorCode)
	})
	step("brokers", func() (any, error) {
		brokers, err := of.admin.ListBrokers(ctx)
		return brokers.NodeIDs(), err
	})
	step("versions", func() (any, error) {
		versions, err := of.admin.ApiVersions(ctx)
		found := table{}
		versions.Each(func(each kadm.BrokerApiVersions) {
			var served []string
			for _, key := range compared {
				oldest, newest, _ := each.KeyVersions(key)
				served = append(served, fmt.Sprintf("%d: %d to %d", key, oldest, newest))
			}
			var features []string
			for _, feature := range each.Raw().SupportedFeatures {
				if !otherFeatures[feature.Name] {
					features = append(features, fmt.Sprint(feature.Name, feature.MinVersion, feature.MaxVersion))
				}
			}
			for _, feature := range each.Raw().FinalizedFeatures {
				if !otherFeatures[feature.Name] {
					features = append(features, fmt.Sprint(feature.Name, " is ", feature.MaxVersionLevel))
				}
			}
			sort.Strings(features)
			found[fmt.Sprint(each.NodeID)] = []any{served, features, told(each.Err)}
		})
		return found, err
	})
}

func (of cluster) features() {
	update := func(name string, level int16, kind int8) func() (any, error) {
		return func() (any, error) {
			change := kadm.FeatureUpdate{Feature: name, MaxVersionLevel: level, UpgradeType: kind}
			updated, err := of.admin.UpdateFeatures(ctx, true, change)
			found := table{}
			for _, each := range updated.Sorted() {
				found[each.Feature] = told(each.Err)
			}
			return found, err
		}
	}
	step("feature as it is", update("kraft.version", 1, 1))
	step("feature too new", update("metadata.version", 1000, 1))
	step("feature downgraded as an upgrade", update("metadata.version", 28, 1))
	step("feature downgraded", update("metadata.version", 28, 2))
	step("feature that is unknown", update("no.such.version", 1, 1))
}

func (of cluster) topics() {
	step("topic", func() (any, error) {
		made, err := of.admin.CreateTopics(ctx, width, 1, nil, "go-wide")
		return errorsOf(made), err
	})
	step("topic with too many replicas", func() (any, error) {
		made, err := of.admin.CreateTopics(ctx, 1, 5, nil, "go-copies")
		return errorsOf(made), err
	})
	step("leaders", func() (any, error) {
		leaders := map[int32]int{}
		err := of.until(func() bool {
			clear(leaders)
			topics, err := of.admin.ListTopics(ctx, "go-wide")
			for _, each := range topics["go-wide"].Partitions {
				if err == nil && each.Leader >= 0 {
					leaders[each.Leader]++
				}
			}
			return len(leaders) == 3 && len(topics["go-wide"].Partitions) == width
		})
		return leaders, err
	})
	step("topic deleted", func() (any, error) {
		deleted, err := of.admin.DeleteTopic(ctx, "go-wide")
		return told(deleted.Err), err
	})
}

func (of cluster) configs() {
	set := func(name, value string, brokers ...int32) func() (any, error) {
		return func() (any, error) {
			change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: pointer(value)}}
			altered, err := of.admin.AlterBrokerConfigs(ctx, change, brokers...)
			if err != nil {
				return nil, err
			}
			return told(altered[0].Err), nil
		}
	}
	read := func(name, awaited string, brokers ...int32) func() (any, error) {
		return func() (any, error) {
			found := map[int32][]any{}
			err := of.until(func() bool {
				described, err := of.admin.DescribeBrokerConfigs(ctx, brokers...)
				heard := 0
				for _, broker := range described {
					for _, each := range broker.Configs {
						if err == nil && each.Key == name {
							var id int32
							fmt.Sscan(broker.Name, &id)
							found[id] = []any{text(each.Value), each.Source.String()}
							if text(each.Value) == awaited {
								heard++
							}
						}
					}
				}
				return heard > 0 && (len(brokers) == 1 || heard == len(brokers))
			})
			return found, err
		}
	}
	step("config of a broker", set(threads, "2", 2))
	step("config of a broker read", read(threads, "2", 2))
	step("config of another broker read", read(threads, "1", 3))
	step("config of all brokers", set(largest, "2000000"))
	step("config of all brokers read", read(largest, "2000000", 1, 2, 3))
	step("config that is wrong", set(threads, "many", 2))
	step("config of no broker", set(threads, "2", 99))
}

func (of cluster) quorum() (quorum, error) {
	asked := kmsg.NewDescribeQuorumRequestTopic()
	asked.Topic = metadata
	asked.Partitions = append(asked.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	request := kmsg.NewPtrDescribeQuorumRequest()
	request.Topics = append(request.Topics, asked)
	answer, err := request.RequestWith(ctx, of.client)
	if err != nil {
		return quorum{}, err
	}
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil || len(answer.Topics) == 0 {
		return quorum{}, err
	}
	found := answer.Topics[0].Partitions[0]
	return quorum{found, answer.Nodes}, kerr.ErrorForCode(found.ErrorCode)
}

// isWhole says whether so many voters are told of, and the other controllers have caught up as observers.
func (of cluster) isWhole(voters int) bool {
	now, err := of.quorum()
	caughtUp := 0
	for _, each := range now.Observers {
		if each.ReplicaID <= 3 && each.LogEndOffset >= now.HighWatermark-1 {
			caughtUp++
		}
	}
	return err == nil && now.HighWatermark > 0 && len(now.CurrentVoters) == voters && caughtUp == 3-voters
}

func (of cluster) voters() {
	var before quorum
	var chosen kmsg.DescribeQuorumResponseTopicPartitionReplicaState
	step("quorum", func() (any, error) {
		if err := of.until(func() bool { return of.isWhole(3) }); err != nil {
			return nil, err
		}
		var err error
		before, err = of.quorum()
		var ids []int
		leads := false
		for _, each := range before.CurrentVoters {
			ids = append(ids, int(each.ReplicaID))
			if each.ReplicaID == before.LeaderID {
				leads = true
			} else {
				chosen = each
			}
		}
		sort.Ints(ids)
		return []any{ids, leads, before.LeaderEpoch > 0, len(before.nodes)}, err
	})
	step("voter that is there", func() (any, error) { return of.add(before, chosen) })
	step("voter removed", func() (any, error) { return of.remove(chosen) })
	step("two voters", func() (any, error) { return true, of.until(func() bool { return of.isWhole(2) }) })
	step("voter removed again", func() (any, error) { return of.remove(chosen) })
	step("voter added", func() (any, error) { return of.add(before, chosen) })
	step("three voters", func() (any, error) { return true, of.until(func() bool { return of.isWhole(3) }) })
}

func (of cluster) add(
	known quorum, voter kmsg.DescribeQuorumResponseTopicPartitionReplicaState,
) (any, error) {
	request := kmsg.NewPtrAddRaftVoterRequest()
	request.VoterID, request.VoterDirectoryID = voter.ReplicaID, voter.ReplicaDirectoryID
	for _, node := range known.nodes {
		for _, listener := range node.Listeners {
			if node.NodeID == voter.ReplicaID {
				request.Listeners = append(request.Listeners, kmsg.AddRaftVoterRequestListener{
					Name: listener.Name, Host: listener.Host, Port: listener.Port,
				})
			}
		}
	}
	answer, err := request.RequestWith(ctx, of.client)
	if err != nil {
		return nil, err
	}
	return told(kerr.ErrorForCode(answer.ErrorCode)), nil
}

func (of cluster) remove(voter kmsg.DescribeQuorumResponseTopicPartitionReplicaState) (any, error) {
	request := kmsg.NewPtrRemoveRaftVoterRequest()
	request.VoterID, request.VoterDirectoryID = voter.ReplicaID, voter.ReplicaDirectoryID
	answer, err := request.RequestWith(ctx, of.client)
	if err != nil {
		return nil, err
	}
	return told(kerr.ErrorForCode(answer.ErrorCode)), nil
}

func (of cluster) unregister(broker int32) (any, error) {
	request := kmsg.NewPtrUnregisterBrokerRequest()
	request.BrokerID = broker
	answer, err := request.RequestWith(ctx, of.client)
	if err != nil {
		return nil, err
	}
	return told(kerr.ErrorForCode(answer.ErrorCode)), nil
}
