import { defineConfig } from "@larkline/process/config";

// The agents of the simulation. Each has its name for instructions: the model sees by them whose words it says.

export default defineConfig({
  agents: {
    default: {
      instructions: "default",
      helpers: [{ agent: "researcher", as: "research" }],
      handoffs: ["expert"],
    },
    researcher: { instructions: "researcher" },
    expert: { instructions: "expert" },
  },
});
