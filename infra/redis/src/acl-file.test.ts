import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { aclFileOf, rulesOf } from "./acl-file.ts";
import { appUsers } from "@larkline/store/rights";
import { exampleFile } from "./example-file.ts";

describe("the file of users", () => {
  it("is what the table says: infra/redis/users.acl is current (npm run redis-users)", () => {
    expect(readFileSync(new URL("../users.acl", import.meta.url), "utf8")).toBe(exampleFile());
  });

  it("holds hashes in place of passwords, and lets two hold while one is changed", () => {
    const [ingress] = appUsers("larkline", []);
    if (ingress === undefined) throw new Error("there is no user");
    const rules = rulesOf(ingress, ["old password", "new password"]);
    expect(rules).not.toContain("password");
    expect(rules.match(/ #[0-9a-f]{64}\b/g)).toHaveLength(2);
  });

  it("lets no client sign in without a password, but for a ping", () => {
    const file = aclFileOf(appUsers("larkline", ["a"]), () => []);
    const [server, health, ...users] = file.trim().split("\n");
    expect(server).toBe("user default off ~* &* +@all");
    expect(health).toBe("user health on nopass resetchannels -@all +ping");
    for (const user of users) {
      expect(user).not.toMatch(/nopass| >| #| ~\*| allkeys| &\*| allchannels|\+@/);
    }
  });

  it("tells runners and deployments apart", () => {
    const names = appUsers("team-a", ["default", "code"]).map(({ name }) => name);
    expect(names).toEqual([
      "ingress",
      "agent-worker",
      "runner-default",
      "runner-code",
      "console",
      "admin",
    ]);
    const file = aclFileOf(appUsers("team-a", ["code"]), () => []);
    expect(file).not.toContain("larkline");
    expect(file).toContain("~{team-a}:tools-code:* ~{team-a}:tools-code.*");
  });
});
