export { codeCache } from "./code-cache.ts";
export { freePort } from "./free-port.ts";
export { isLongRun } from "./long-run.ts";
export { startOtlpReceiver, type OtlpReceiver, type ReceivedSpan } from "./otlp-receiver.ts";
export { patientClock } from "./patient-clock.ts";
export { startPostgres, type TestPostgres } from "./postgres.ts";
export { startRedis, type TestRedis } from "./redis.ts";
export { startTcpLine, type Swallowed, type TcpLine } from "./tcp-line.ts";
export { startRedisCluster, type TestRedisClusterOptions } from "./redis-cluster.ts";
export type { TestRedisNodes, TestRedisNodesOptions, TestRedisNodeUsers } from "./redis-nodes.ts";
export { startRedisSentinel } from "./redis-sentinel.ts";
export { startModelServer, type ModelServer, type ModelServerOptions } from "./model-server.ts";
export { demoScript } from "./model-server-demo.ts";
export type {
  ModelDialect,
  ModelFault,
  ModelScript,
  NormalisedMessage,
  NormalisedRequest,
  ScriptedCall,
  ScriptedReply,
} from "./model-server-script.ts";
export {
  replyOfStream,
  vendorAnswers,
  type VendorAnswer,
  type VendorStream,
} from "./vendor-streams.ts";
