import { Icon } from "@/components/ui/Icon";
import { Menu, MenuItem } from "@/components/ui/Menu";
import type { Sort } from "@/api";
import { useAddress, useChangeAddress } from "@/useAddress";

const ORDERS: readonly (readonly [Sort | undefined, string])[] = [
  [undefined, "Newest first"],
  ["oldest", "Oldest first"],
  ["cost", "Most expensive first"],
  ["duration", "Longest first"],
];

/** A button that opens the orders of the list. */
export function SortMenu() {
  const { sort } = useAddress();
  const changeAddress = useChangeAddress();
  const name = ORDERS.find(([order]) => order === sort)?.[1] ?? "";
  return (
    <Menu
      label="Sort"
      title={name}
      anchor="sort"
      className="min-w-(--control-h) px-1.5"
      content={<Icon name="sort" className={sort === undefined ? "size-3.5 text-icon" : "size-3.5 text-accent-text"} />}
    >
      {ORDERS.map(([order, label]) => (
        <MenuItem
          key={label}
          isChecked={order === sort}
          icon={order === sort && <Icon name="done" className="size-3.5 text-done" />}
          onSelect={() => changeAddress({ sort: order })}
        >
          {label}
        </MenuItem>
      ))}
    </Menu>
  );
}
