import { chmod, mkdir, mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { openFolder } from "./folder.ts";

it("closes .data to other users, but for the folders that containers mount as other users", async () => {
  const checkout = await mkdtemp(join(tmpdir(), "larkline-checkout-"));
  onTestFinished(async () => await rm(checkout, { recursive: true, force: true }));
  const modeOf = async (path: string) =>
    ((await stat(join(checkout, ".data", path))).mode & 0o777).toString(8);
  await mkdir(join(checkout, ".data", "compose", "redis"), { recursive: true });
  for (const name of ["", "compose"]) await chmod(join(checkout, ".data", name), 0o777);
  await chmod(join(checkout, ".data", "compose", "redis"), 0o700); // as under `umask 077`
  const folder = await openFolder("compose", checkout);
  await folder.save([
    { name: "secrets.env", text: "A='1'\n", isPublic: false },
    { name: "redis/users.acl", text: "user default off\n", isPublic: true },
  ]);
  const paths = ["", "compose", "compose/secrets.env", "compose/redis", "compose/redis/users.acl"];
  expect(await Promise.all(paths.map(modeOf))).toEqual(["700", "700", "600", "755", "644"]);
});
