export { freePort } from "./free-port.ts";
export { startRedis, type TestRedis } from "./redis.ts";
export { startRedisCluster, type TestRedisCluster } from "./redis-cluster.ts";
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
