// `npm run redis-users`: writes infra/redis/users.acl, for reading and for other ways of deployment.
// It has no passwords: no client can sign in as one of these users before `ACL SETUSER <user> ><password>`.
import { writeFile } from "node:fs/promises";
import { exampleFile } from "./example-file.ts";

await writeFile(new URL("../users.acl", import.meta.url), exampleFile());
