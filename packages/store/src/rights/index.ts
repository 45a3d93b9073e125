export { appUsers, runnerUserName } from "./app-users.ts";
export { missingRights, rightsProblem } from "./check-rights.ts";
export { channelFamilies, keyFamilies, type ChannelFamily, type Place } from "./key-families.ts";
export type { Grant, RedisUser } from "./redis-user.ts";
