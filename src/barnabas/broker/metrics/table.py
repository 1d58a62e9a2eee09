"""Every metric, one a row: name, kind, labels, and a sentence. A test compares docs/metrics.md with it.

The first part are Kafka's own metrics, under the names that Prometheus' JMX exporter gives them by its
published rules, so that dashboards and alerts made for Kafka go on working: type and name of the MBean in
lower case, `PerSec` counts as `_total`, labels as the MBean's keys. The second part are the metrics that
Prometheus' client libraries have for any process, the third those that only this broker has.
"""

from __future__ import annotations

from barnabas.core.metrics import read_families

# ruff: noqa: E501
_ROWS = """\
kafka_server_brokertopicmetrics_messagesin_total counter topic Records appended by producers.
kafka_server_brokertopicmetrics_bytesin_total counter topic Bytes of batches appended by producers.
kafka_server_brokertopicmetrics_bytesout_total counter topic Bytes of batches sent to consumers.
kafka_server_brokertopicmetrics_bytesrejected_total counter topic Bytes of batches that were too large.
kafka_server_brokertopicmetrics_totalproducerequests_total counter topic Partitions that were asked to append.
kafka_server_brokertopicmetrics_failedproducerequests_total counter topic Of these, how many failed in an unusual way.
kafka_server_brokertopicmetrics_totalfetchrequests_total counter topic Partitions that were asked for records.
kafka_server_brokertopicmetrics_failedfetchrequests_total counter topic Of these, how many failed in an unusual way.
kafka_server_brokertopicmetrics_replicationbytesin_total counter - Bytes of batches appended that leaders have sent.
kafka_server_brokertopicmetrics_replicationbytesout_total counter - Bytes of batches sent to followers.
kafka_network_requestmetrics_requests_total counter request,version Requests answered.
kafka_network_requestmetrics_errors_total counter request,error Errors told in answers; NONE counts answers without any.
kafka_network_requestmetrics_totaltimems summary request Milliseconds from the request's last byte to its answer being queued.
kafka_network_socketserver_networkprocessoravgidle_percent gauge - The part of time (0 to 1) in which the event loop was idle.
kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent gauge - The same: one loop does both.
kafka_server_socket_server_metrics_connection_count gauge listener Connections that are open.
kafka_server_socket_server_metrics_connection_creation_total counter listener Connections accepted.
kafka_server_socket_server_metrics_connection_close_total counter listener Connections that have ended.
kafka_server_socket_server_metrics_expired_connections_killed_count gauge listener Connections closed for being idle, since the start.
kafka_server_delayedoperationpurgatory_purgatorysize gauge delayedOperation Places at which requests wait: a fetch waits at each of its partitions.
kafka_server_delayedoperationpurgatory_numdelayedoperations gauge delayedOperation Requests that wait.
kafka_server_fetchsessioncache_numincrementalfetchsessions gauge - Fetch sessions.
kafka_server_fetchsessioncache_numincrementalfetchpartitionscached gauge - Partitions in fetch sessions.
kafka_server_kafkaserver_brokerstate gauge - As Kafka numbers it: 2 while it recovers, 3 when it serves, 6 while it stops.
kafka_server_replicamanager_partitioncount gauge - Partitions with a replica here.
kafka_server_replicamanager_leadercount gauge - Partitions led here.
kafka_server_replicamanager_offlinereplicacount gauge - Replicas here whose directory cannot be used.
kafka_server_replicamanager_underreplicatedpartitions gauge - Partitions led here with fewer in-sync replicas than replicas.
kafka_server_replicamanager_underminisrpartitioncount gauge - Partitions led here with fewer in-sync replicas than min.insync.replicas.
kafka_server_replicamanager_atminisrpartitioncount gauge - Partitions led here with just as many.
kafka_server_replicamanager_reassigningpartitions gauge - Partitions led here whose replicas are moving.
kafka_server_replicamanager_isrshrinks_total counter - Changes of an ISR by which followers left that lagged behind.
kafka_server_replicamanager_isrexpands_total counter - Changes of an ISR by which followers joined that have caught up.
kafka_server_replicamanager_failedisrupdates_total counter - Changes of an ISR that the controller has not taken.
kafka_server_replicafetchermanager_maxlag gauge clientId Committed records that the most lagging partition followed here has yet to fetch.
kafka_server_replicafetchermanager_failedpartitionscount gauge clientId Partitions followed here whose last fetch has failed.
kafka_cluster_partition_replicascount gauge topic,partition Replicas of a partition led here.
kafka_cluster_partition_insyncreplicascount gauge topic,partition In-sync replicas of a partition led here.
kafka_cluster_partition_underreplicated gauge topic,partition 1 where some replica is not in sync.
kafka_cluster_partition_underminisr gauge topic,partition 1 where fewer are in sync than min.insync.replicas.
kafka_cluster_partition_atminisr gauge topic,partition 1 where just as many are in sync.
kafka_cluster_partition_laststableoffsetlag gauge topic,partition High watermark less last stable offset, of a partition in use.
kafka_controller_kafkacontroller_activecontrollercount gauge - 1 on the node that leads the metadata quorum.
kafka_controller_kafkacontroller_newactivecontrollerscount gauge - Epochs of which this node got to know the active controller, since the start.
kafka_controller_kafkacontroller_activebrokercount gauge - Brokers that are registered and not fenced.
kafka_controller_kafkacontroller_fencedbrokercount gauge - Brokers that are registered and fenced.
kafka_controller_kafkacontroller_controlledshutdownbrokercount gauge - Brokers that are registered and stop, or have stopped.
kafka_controller_kafkacontroller_brokerregistrationstate gauge broker As Kafka numbers it: 10 fenced, 20 in controlled shutdown, 30 active.
kafka_controller_kafkacontroller_timesincelastheartbeatreceivedms gauge broker Milliseconds since the last heartbeat of a broker, on the active controller.
kafka_controller_kafkacontroller_globaltopiccount gauge - Topics of the cluster.
kafka_controller_kafkacontroller_globalpartitioncount gauge - Partitions of the cluster.
kafka_controller_kafkacontroller_offlinepartitionscount gauge - Partitions that nobody leads.
kafka_controller_kafkacontroller_preferredreplicaimbalancecount gauge - Partitions led by another than their first replica.
kafka_controller_kafkacontroller_lastappliedrecordoffset gauge - The last metadata record that the controller has applied.
kafka_controller_kafkacontroller_lastappliedrecordtimestamp gauge - When that was written, in milliseconds since 1970.
kafka_controller_kafkacontroller_lastappliedrecordlagms gauge - Milliseconds for which this node has not known that it has all that is committed.
kafka_controller_kafkacontroller_lastcommittedrecordoffset gauge - The last metadata record that is committed, as far as this node knows.
kafka_controller_kafkacontroller_metadataerrorcount gauge - Metadata that could not be loaded or applied; a node stops with the first.
kafka_controller_kafkacontroller_ignoredstaticvoters gauge - 1 where controller.quorum.voters is set, and the metadata log names the voters.
kafka_controller_controllerstats_uncleanleaderelections_total counter - Elections of a replica that may lack committed records.
kafka_controller_controllerstats_electionfromeligibleleaderreplicas_total counter - Elections of an eligible leader replica.
kafka_server_broker_metadata_metrics_last_applied_record_offset gauge - The last metadata record that the broker has applied.
kafka_server_broker_metadata_metrics_last_applied_record_timestamp gauge - When that was written, in milliseconds since 1970.
kafka_server_broker_metadata_metrics_last_applied_record_lag_ms gauge - Milliseconds for which this node has not known that it has all that is committed.
kafka_server_broker_metadata_metrics_metadata_load_error_count gauge - Metadata that could not be read or replayed; a node stops with the first.
kafka_server_broker_metadata_metrics_metadata_apply_error_count gauge - Changes of the metadata that this node could not follow; it stops with the first.
kafka_server_broker_metadata_metrics_ignored_static_voters gauge - 1 where controller.quorum.voters is set, and the metadata log names the voters.
kafka_server_metadataloader_currentcontrollerid gauge - The active controller, -1 where none is known.
kafka_server_metadataloader_currentmetadataversion gauge - The level of metadata.version.
kafka_server_metadataloader_finalizedlevel gauge featureName The level of a feature.
kafka_server_metadataloader_handleloadsnapshotcount gauge - Snapshots of the metadata fetched and loaded since the start.
kafka_server_raft_metrics_current_state_info gauge state 1; the state of this node in the quorum: leader, follower, observer, candidate, prospective or unattached.
kafka_server_raft_metrics_current_leader gauge - The node that leads the metadata quorum, -1 where none does.
kafka_server_raft_metrics_current_vote gauge - The node that this one has voted for in its epoch, -1 where it has not.
kafka_server_raft_metrics_current_epoch gauge - The epoch of the metadata quorum.
kafka_server_raft_metrics_high_watermark gauge - Where the committed metadata ends, as far as this node knows.
kafka_server_raft_metrics_log_end_offset gauge - Where the metadata log ends.
kafka_server_raft_metrics_log_end_epoch gauge - The epoch of the last record in the metadata log.
kafka_server_raft_metrics_number_of_voters gauge - Voters of the metadata quorum.
kafka_server_raft_metrics_number_of_observers gauge - Nodes that follow without a vote, on the node that leads.
kafka_server_raft_metrics_uncommitted_voter_change gauge - 1 while a change of the voters is not committed, on the node that leads.
kafka_server_raft_metrics_election_latency_avg gauge - Milliseconds from asking for votes to a leader, on average in the last minute.
kafka_server_raft_metrics_election_latency_max gauge - The longest of these.
kafka_server_raft_metrics_commit_latency_avg gauge - Milliseconds from a decision of the active controller to its commit, on average in the last minute.
kafka_server_raft_metrics_commit_latency_max gauge - The longest of these.
kafka_log_log_size gauge topic,partition Bytes of batches, of a partition in use.
kafka_log_log_logstartoffset gauge topic,partition The first offset, of a partition in use.
kafka_log_log_logendoffset gauge topic,partition The next offset, of a partition in use.
kafka_log_log_numlogsegments gauge topic,partition Segments, of a partition in use.
kafka_log_logflushstats_logflushrateandtimems summary logDirectory Milliseconds of a flush of a log to the disk.
kafka_log_logmanager_offlinelogdirectorycount gauge - Log directories that cannot be used.
kafka_log_logmanager_logdirectoryoffline gauge logDirectory 1 where a log directory cannot be used.
kafka_log_logcleaner_cleaner_recopy_percent gauge - Of what compaction read, how much it wrote again, in percent.
kafka_log_logcleaner_max_clean_time_secs gauge - Seconds of the last compaction.
kafka_log_logcleanermanager_max_dirty_percent gauge - The dirtiest log of those that are due, in percent.
kafka_log_logcleanermanager_time_since_last_run_ms gauge - Milliseconds since compaction last looked for work.
kafka_log_logcleanermanager_uncleanable_partitions_count gauge logDirectory Logs that could not be compacted, and are left alone.
kafka_coordinator_group_groupmetadatamanager_numgroups gauge - Groups coordinated here.
kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance gauge - Groups whose members join the next generation.
kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance gauge - Groups whose leader has yet to say who gets what.
kafka_coordinator_group_groupmetadatamanager_numgroupsstable gauge - Groups in which everybody has a part.
kafka_coordinator_group_groupmetadatamanager_numgroupsdead gauge - Groups that are on their way out; here they go at once.
kafka_coordinator_group_groupmetadatamanager_numgroupsempty gauge - Groups without members.
kafka_coordinator_group_groupmetadatamanager_numoffsets gauge - Partitions for which groups have committed offsets.
process_cpu_seconds_total counter - Processor time of the process, in seconds.
process_resident_memory_bytes gauge - Memory that is resident.
process_virtual_memory_bytes gauge - Memory that is mapped.
process_start_time_seconds gauge - When the process started, in seconds since 1970.
process_open_fds gauge - File descriptors in use, sockets included.
process_max_fds gauge - How many there may be.
python_info gauge implementation,version The interpreter.
python_gc_collections_total counter generation Collections of garbage.
python_gc_objects_collected_total counter generation Objects that were garbage.
python_gc_objects_uncollectable_total counter generation Objects that were garbage and could not be freed.
barnabas_build_info gauge version,kernel,loop 1; the version, the record kernel (c or pure) and the event loop in use.
barnabas_start_seconds gauge - What the start took, until clients were answered; of a controller, until it took part in the quorum.
barnabas_loop_stall_seconds histogram - How late a timer of the event loop was, ten times a second.
barnabas_loop_busy_seconds_total counter - Processor time of the event loop's thread, in seconds.
barnabas_request_seconds histogram request The same times as totaltimems, in buckets that can be added up.
barnabas_connections_turned_away_total counter listener Connections refused for max.connections or max.connections.per.ip.
barnabas_queued_request_bytes gauge - Memory that requests take, where queued.max.request.bytes limits it.
barnabas_partitions_open gauge - Partitions whose log is open.
barnabas_log_bytes gauge logDirectory Bytes of batches of all logs in use.
barnabas_open_files gauge - File descriptors of logs.
barnabas_log_openings_total counter - Logs opened since the start.
barnabas_log_opening_seconds_total counter - What that took.
barnabas_log_recoveries_total counter - Logs of these that had not been closed cleanly.
barnabas_log_recovery_seconds_total counter - What their recovery took.
barnabas_log_truncations_total counter - Logs cut at their end, since their leader has another history.
barnabas_log_truncated_records_total counter - Offsets that were cut off so.
barnabas_log_restarts_total counter - Logs begun anew at their leader's first offset, which was beyond their end.
barnabas_follower_lag_records gauge follower Records that a broker has yet to fetch of the partitions led here.
barnabas_follower_lag_seconds gauge follower The longest time for which a broker has not been caught up with a partition led here.
barnabas_follower_out_of_sync_partitions gauge follower Partitions led here of which a broker has a replica that is not in sync.
barnabas_fetcher_partitions gauge leader Partitions fetched from a leader.
barnabas_fetcher_lag_records gauge leader Committed records that are yet to be fetched there, as its last answers say.
barnabas_fetcher_lag_seconds gauge leader The longest time for which a partition fetched from a leader has been behind.
barnabas_fetcher_requests_total counter leader Fetches sent to a leader.
barnabas_fetcher_bytes_total counter leader Bytes of batches from a leader that were appended.
barnabas_fetcher_failures_total counter leader Partitions that could not be fetched from a leader, each time.
barnabas_leader_elections_total counter kind Elections of partition leaders seen by this controller: preferred, isr, elr, last_known, unclean.
barnabas_compaction_rounds_total counter - How often compaction looked for work.
barnabas_compactions_total counter - Compactions of a log.
barnabas_compactions_failed_total counter - Compactions that failed, after which the log is left alone.
barnabas_compaction_seconds_total counter - What compactions took.
barnabas_compaction_read_bytes_total counter - Bytes that compactions read.
barnabas_compaction_written_bytes_total counter - Bytes that they wrote.
barnabas_compaction_read_records_total counter - Records that compactions read.
barnabas_compaction_kept_records_total counter - Records that they kept.
barnabas_group_rebalances_total counter - Generations of groups that began; many in a short time are a storm.
barnabas_transactional_ids gauge state Transactional ids coordinated here, by the state of their last transaction.
barnabas_brokers_fenced_total counter reason Brokers fenced by this node as the active controller: their session was over, or their socket said that they are gone.
barnabas_scrapes_total counter - Answers like this one, this one included.
barnabas_scrape_seconds gauge - What it took to gather this one."""

FAMILIES = read_families(_ROWS)
