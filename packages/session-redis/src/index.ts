export { createRedisBlobStore, type RedisBlobStoreOptions } from "./blob-store.ts";
export { closeRedis, connectRedis, redisUrlProblem, type ConnectOptions, type RedisConnection } from "./connection.ts";
export { createRedisEventLog, type RedisEventLogOptions } from "./event-log.ts";
export { defaultNamespace } from "./keys.ts";
export { createRedisPresence, type Presence, type RedisPresenceOptions } from "./presence.ts";
export { createRedisRunnerDirectory, type RedisRunnerDirectoryOptions } from "./runner-directory.ts";
export { createRedisSessionStore, type RedisSessionStoreOptions } from "./session-store.ts";
export { createRedisTokenCache, type RedisTokenCacheOptions } from "./token-cache.ts";
export { readServerFacts, type RedisServerFacts } from "./server-facts.ts";
