import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A configuration file of its own for the processes of a test. */
export async function writeConfig(
  config: object,
): Promise<{ path: string; remove(): Promise<void> }> {
  const folder = await mkdtemp(join(tmpdir(), "larkline-config-"));
  const path = join(folder, "larkline.config.ts");
  await writeFile(path, `export default ${JSON.stringify(config)};\n`);
  return { path, remove: async () => await rm(folder, { recursive: true, force: true }) };
}
