import { createEnvReader, lendPackages } from "@larkline/process/config";
import { loadTools, runRunner } from "@larkline/runner";

async function runTools(): Promise<void> {
  const reader = createEnvReader(process.env);
  const named = reader.list("RUNNER_TOOLS");
  // A tool may be a single file anywhere.
  const lend = { names: ["@larkline/tool-kit", "typebox"], lender: import.meta.url };
  lendPackages(lend.names, lend.lender);

  await runRunner({
    load: async () =>
      await loadTools(named.length > 0 ? named : ["@larkline/example-tools"], { directory: process.cwd(), lend }),
    refuse: (problem) => {
      console.error(problem);
      process.exit(1);
    },
  });
}

if (process.argv[2] === "--sandbox-host") {
  const { runSandboxHost } = await import("./sandbox-host/sandbox-host.ts");
  await runSandboxHost();
} else {
  await runTools();
}
