export { appUsers, runnerUserName, type Grant, type RedisUser } from "./app-users.ts";
export { missingRights, rightsProblem } from "./check-rights.ts";
