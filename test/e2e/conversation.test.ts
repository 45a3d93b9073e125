import { useDeployment } from "./conversation-deployment.ts";
// The first: it counts what tools have recorded.
import "./conversation-order.suite.ts";
import "./conversation-commands.suite.ts";
import "./conversation-context.suite.ts";
// Both kill all workers.
import "./conversation-memory.suite.ts";
import "./conversation-compaction.suite.ts";

useDeployment();
