import { aclFileOf } from "./acl-file.ts";
import { appUsers } from "@larkline/store/rights";

/** The users of a deployment with one runner and the usual namespace, without passwords: no client can sign in as one of them. */
export function exampleFile(): string {
  return aclFileOf(appUsers("larkline", ["default"]), () => []);
}
