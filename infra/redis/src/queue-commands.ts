// What BullMQ does with the keys of a queue, by what is asked of it. Its scripts run with the caller's rights.

/** Adding jobs in place of finished ones of the same id (`add-job.lua`), and the facts that a queue keeps of itself. */
export const addJobs = "del exists hmget hset incr llen lpush zadd zrem";

/** Adding jobs with a priority, looking a job up, removing one, and setting the limits of a queue. */
export const keepQueue = `${addJobs} get hdel hget hgetall hlen hmset lpos lrange lrem pttl rpush scard set smembers srem xadd zcard zrange zrangebyscore zrevrangebyscore zscore`;

/**
 * All that a worker does: taking, renewing, finishing, retrying, giving back and recovering jobs. Runners in other
 * languages do it by plain commands, as docs/tool-protocol.md has them.
 */
export const workQueue = `${keepQueue} blmove bzpopmin hexists hincrby lmove ltrim pexpire rpoplpush sadd xtrim zpopmin zremrangebyrank zremrangebyscore zrevrange`;

/** Looking into a queue, and what operators do with it: pause, retry, promote, clean. */
export const tendQueue = `${keepQueue} hexists lindex lpop lset ltrim rename rpop sadd type zcount zrevrange`;

/** Removing what is kept of finished jobs. */
export const eraseJobs = "del hget lrange zrange zrem";
