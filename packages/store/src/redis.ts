// Connections to Redis: how they are opened, what is wrong with them, and what runs on their clock.
export {
  closeRedis,
  connectRedis,
  isAnswered,
  isRedisTrouble,
  mastersOf,
  redisUrlProblem,
  takesWrites,
  type RedisConnection,
} from "./connection.ts";
export { ServerClock } from "./server-clock.ts";
export { type Fate, heartbeatMs, OwnPresence, runnerGroup, workersGroup } from "./presence.ts";
